"""A result's file, and the cells that an interrupted run has kept."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from scripts.common import WORK, Failure

SCHEMA = 1
PARTIAL = WORK / "harness"


def write(path: Path, data: Any) -> None:
    """Write JSON in one step: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def read(path: Path) -> Any:
    """A JSON file. Raises Failure if it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise Failure(f"{path} is no JSON ({problem}): delete it and measure again") from None


def key_of(about: Any) -> str:
    """Names a kind of run: changes with anything that its cells depend on."""
    text = json.dumps(about, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Cells:
    """The finished cells of one kind of run, on disk after each of them."""

    def __init__(self, name: str, key: str, finished: Path, fresh: bool) -> None:
        self.path = PARTIAL / name / f"{key}.json"
        self.key = key
        self.values: dict[str, Any] = {}
        if fresh:
            self.path.unlink(missing_ok=True)
        elif self.path.exists():
            self.values = read(self.path)
        elif finished.exists():
            earlier = read(finished)
            if isinstance(earlier, dict) and earlier.get("key") == key:
                self.values = earlier["cells"]

    def keep(self, cell: str, value: Any) -> None:
        """Store a cell; it survives a kill from here on."""
        self.values[cell] = value
        write(self.path, self.values)

    def done(self) -> None:
        """Drop the partial file: the result holds all of it."""
        self.path.unlink(missing_ok=True)
