"""How large each patch is, and how much of it touches files that upstream has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scripts.common import series
from scripts.series import patchfile


@dataclass
class Size:
    """Lines added and removed: in files the series creates, in upstream's, in tests of either."""

    new: tuple[int, int] = (0, 0)
    shared: tuple[int, int] = (0, 0)
    tests: tuple[int, int] = (0, 0)

    def add(self, kind: str, added: int, removed: int) -> None:
        """Count lines under new, shared or tests."""
        before = getattr(self, kind)
        setattr(self, kind, (before[0] + added, before[1] + removed))


def sizes(patches: list[Path]) -> dict[str, Size]:
    """Patch name to size. A file created by an earlier patch of the series counts as new."""
    created: set[str] = set()
    result = {}
    for patch in patches:
        size = result[patch.name] = Size()
        for file in patchfile.files(patch):
            if file.old is None or file.old in created:
                created.add(file.path)
            kind = "new" if file.path in created else "shared"
            size.add("tests" if file.path.startswith("tests/") else kind, file.added, file.removed)
    return result


def table() -> str:
    """The sizes as a table with totals."""
    found = sizes(series())
    total = Size()
    for size in found.values():
        for kind in ("new", "shared", "tests"):
            total.add(kind, *getattr(size, kind))
    rows = [*found.items(), (f"{len(found)} patches", total)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{'patch':{width}}  {'new files':>14}  {'shared files':>14}  {'tests':>14}"]
    for name, size in rows:
        cells = (f"{f'+{a} -{r}':>14}" for a, r in (size.new, size.shared, size.tests))
        lines.append(f"{name:{width}}  {'  '.join(cells)}")
    return "\n".join(lines)
