"""Input files whose bytes are pinned: figures over other data don't compare."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

from scripts.common import Failure

PINNED = Path(__file__).with_name("inputs.toml")


def digest(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def pinned(file: Path = PINNED) -> dict[str, dict[str, str]]:
    """Name -> {sha256, source} of every input that the scripts take."""
    with file.open("rb") as stream:
        return tomllib.load(stream)


def check(name: str, path: Path) -> str:
    """The sha256 of an input. Raises Failure if it is missing, or not the pinned one."""
    known = pinned()
    if name not in known:
        raise Failure(f"no pinned input {name}: known are {', '.join(known)} ({PINNED.name})")
    entry = known[name]
    if not path.is_file():
        raise Failure(f"the input {name} is not at {path}: {entry['source']}")
    found = digest(path)
    if found != entry["sha256"]:
        raise Failure(
            f"{path} is not the input {name} that was pinned: sha256 {found}, expected "
            f"{entry['sha256']}\nfetch it again ({entry['source']}); if its source has changed, "
            f"pin the new one in scripts/harness/{PINNED.name} and measure all that uses it again"
        )
    return found
