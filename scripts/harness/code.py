"""The scripts' own files behind a measurement: cells of other code are not resumed."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from scripts.common import ROOT

SCRIPTS = ROOT / "scripts"


def digest() -> str:
    """sha256 over the loaded modules of scripts/, whole packages and their data files."""
    found = hashlib.sha256()
    for path in sorted(files()):
        found.update(f"{path.relative_to(ROOT)}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def files() -> set[Path]:
    """What is hashed: a package counts whole, for some of its modules are imported late."""
    found = set()
    for module in list(sys.modules.values()):
        path = Path(getattr(module, "__file__", None) or "/").resolve()
        if path.parent == SCRIPTS:
            found.add(path)
        elif path.is_relative_to(SCRIPTS):
            found |= {one for one in path.parent.iterdir() if one.suffix in (".py", ".toml")}
    return found
