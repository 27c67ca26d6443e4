"""What is measured: is vllm/ the committed series, and does it stay so while a run lasts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.ab.kernels import kernels
from scripts.ab.swap import NEW, Swapper
from scripts.common import BASE_COMMIT, BASE_VERSION, PATCHES, ROOT, VLLM, Failure, git, series
from scripts.series import compare
from scripts.series import tree as trees
from scripts.series.base import require

# What a measurement can load of the tree.
MEASURED = ("vllm", "benchmarks")


@dataclass(frozen=True)
class Series:
    """The series as it is measured.

    commit: this repository's last one that changed a patch of the series; digest: sha256 over the
    patches; stack: HEAD of vllm/; variant: "new", or the kernel whose old files are in.
    """

    commit: str | None
    digest: str
    stack: str
    variant: str

    def record(self) -> dict[str, Any]:
        """As a result's JSON says it."""
        return {
            "commit": self.commit,
            "patches": [path.name for path in series()],
            "digest": self.digest,
            "stack": self.stack,
            "variant": self.variant,
            "base": {"version": BASE_VERSION, "commit": BASE_COMMIT},
        }


def read(*, variants: bool = False) -> tuple[Series, list[str]]:
    """The series in vllm/, and why it is not the committed one: no reason if it is.

    variants: the old files of a kernel, as `make ab-old` puts them, are what is to be measured.
    """
    require()
    state = compare.compare(VLLM, series())
    reasons = []
    if unfinished := trees.unfinished(VLLM):
        reasons.append(f"vllm/ is in the middle of a git operation ({unfinished}): finish it")
    if state.missing:
        missing = ", ".join(path.name for path in state.missing)
        reasons.append(f"vllm/ lacks patches ({missing}): make apply")
    if state.extra:
        reasons.append(f"vllm/ has {len(state.extra)} commits that patches/ has not: make export")
    variant, edited = NEW, trees.dirty(VLLM)
    if edited:
        swapper = Swapper(kernels())
        swapped = swapper.state()
        if variants and swapped.inside and swapped.inside != (NEW,):
            variant = f"old {swapped.inside[0]}"
            edited = [path for path in edited if path not in swapped.old]
    if edited:
        reasons.append(
            f"vllm/ has uncommitted edits:\n{trees.listed(edited)}\n"
            "commit them and make export; make ab-new takes an old kernel out"
        )
    commit, unsaved = _commit()
    reasons += unsaved
    return Series(commit, _digest(), trees.head(VLLM), variant), reasons


def checksum() -> str:
    """sha256 over the paths and bytes of every file that a run can load from vllm/."""
    found = hashlib.sha256()
    for path in _files():
        found.update(f"{path}\0".encode(errors="surrogateescape"))
        file = VLLM / path
        # A submodule or a broken link is listed as well.
        if file.is_file():
            found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


class Watch:
    """Notices files of vllm/ that change under a run, an edit that was taken back included."""

    def __init__(self) -> None:
        self.checksum = checksum()
        self._stamps = _stamps()

    def check(self) -> None:
        """Raise Failure if anything changed since the start."""
        if _stamps() == self._stamps:
            return
        changed = "" if checksum() == self.checksum else ", and are others now"
        raise Failure(
            f"files in vllm/ were written while the run went on{changed}: what was measured since "
            "is not kept\nleave vllm/ alone during a run (a clone of the repository is free), then "
            "run the same command again: cells that were finished before are kept"
        )


def _files() -> list[str]:
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *MEASURED)
    return sorted(path for path in listed.split("\0") if path)


def _stamps() -> list[tuple[str, int, int]]:
    stamps = []
    for path in _files():
        try:
            stat = (VLLM / path).stat()
        except OSError:
            stamps.append((path, 0, 0))
        else:
            stamps.append((path, stat.st_mtime_ns, stat.st_size))
    return stamps


def _digest() -> str:
    found = hashlib.sha256()
    for path in series():
        found.update(f"{path.name}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _commit() -> tuple[str | None, list[str]]:
    """The last commit that changed the series, and why there is none that holds it."""
    here = ROOT
    if not trees.is_repository(here):
        return None, ["the series has no commit here: take a git clone of the repository"]
    names = [f":/{path.relative_to(here)}" for path in [PATCHES / "series", *series()]]
    commit = git("log", "-1", "--format=%H", "--", *names, cwd=here).strip() or None
    edited = git("status", "--porcelain", "--", *names, cwd=here).splitlines()
    if not edited:
        return commit, []
    paths = trees.listed([str(Path(line[3:])) for line in edited])
    return commit, [f"patches/ has uncommitted changes:\n{paths}\ncommit them: git commit patches"]


def require_series(reasons: list[str], allow_dirty: bool) -> None:
    """Raise Failure with the reasons, unless they are allowed."""
    if reasons and not allow_dirty:
        raise Failure(
            "what is in vllm/ is not the committed series, so a result could not be traced:\n"
            + "\n".join(reasons)
            + "\nor measure it as it is with --allow-dirty, which the result then says"
        )
