"""What a run reads beside the code: pinned where the project chose it, else recorded.

Figures over other data don't compare, so a pinned input with other bytes is refused. What a user
names (--model PATH) has no pin: the result says which bytes it was.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.common import Failure

PINNED = Path(__file__).with_name("inputs.toml")


@dataclass(frozen=True)
class Input:
    """A file, or a folder of files.

    name: in the result. sha256: what `digest` must give; None: it is only recorded. remedy: how to
    get the pinned one. made_from: sha256 of the pinned file that it was converted from.
    """

    name: str
    path: Path
    sha256: str | None = None
    remedy: str = ""
    made_from: str | None = None

    def record(self, found: str) -> dict[str, Any]:
        """As a result's JSON says it; found: its digest."""
        told: dict[str, Any] = {"sha256": found, "pinned": self.sha256 is not None}
        return told | ({"made_from": self.made_from} if self.made_from else {})


def digest(path: Path) -> str:
    """sha256 of a file; of a folder over names and bytes of its own files that aren't hidden."""
    if path.is_dir():
        found = hashlib.sha256()
        for file in sorted(path.iterdir()):
            if file.is_file() and not file.name.startswith("."):
                found.update(f"{file.name}\0{digest(file)}\n".encode())
        return found.hexdigest()
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def pins(file: Path = PINNED) -> dict[str, dict[str, str]]:
    """Name -> {sha256, source} of what the data file pins."""
    with file.open("rb") as stream:
        return tomllib.load(stream)


def pinned(name: str, path: Path) -> Input:
    """The input that the data file pins by this name. Raises Failure if it pins none."""
    known = pins()
    if name not in known:
        raise Failure(f"no pinned input {name}: known are {', '.join(known)} ({PINNED.name})")
    remedy = (
        f"fetch it again ({known[name]['source']}); if its source has changed, pin the new one in "
        f"scripts/harness/{PINNED.name} and measure all that uses it again"
    )
    return Input(name, path, known[name]["sha256"], remedy)


def check(one: Input) -> str:
    """The digest of an input. Raises Failure if it is missing, or not the pinned one."""
    if not one.path.exists():
        raise Failure(f"the input {one.name} is not at {one.path}\n{one.remedy}".rstrip())
    found = digest(one.path)
    if one.sha256 not in (None, found):
        raise Failure(
            f"{one.path} is not the input {one.name} that was pinned: sha256 {found}, expected "
            f"{one.sha256}\n{one.remedy}"
        )
    return found
