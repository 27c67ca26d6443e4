"""Tells from content how far patches/series is applied in a tree: never from a marker file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from scripts.common import git
from scripts.series import patchfile
from scripts.series import tree as trees


@dataclass
class State:
    """The stack in a tree against the series.

    The first `applied` patches are the first commits, content by content. `extra` are the
    commits above those; `reworded` the applied patches whose message, author or date differs.
    """

    base: str
    patches: list[Path]
    stack: list[str]
    applied: int
    reworded: list[Path] = field(default_factory=list)

    @property
    def extra(self) -> list[str]:
        """Commits that patches/ does not have (or has in another form)."""
        return self.stack[self.applied :]

    @property
    def missing(self) -> list[Path]:
        """Patches that are not applied (or are in another form)."""
        return self.patches[self.applied :]

    @property
    def complete(self) -> bool:
        """True if every patch is applied."""
        return not self.missing

    def describe(self) -> str:
        """The state in a few words."""
        total = len(self.patches)
        if not total:
            words = "patches/series is empty"
        elif self.complete:
            words = f"applied ({total} of {total})"
        elif self.applied:
            words = f"partly applied ({self.applied} of {total})"
        elif self.extra:
            words = "can't tell: the stack's first commit is not the series' first patch"
        else:
            words = f"clean (0 of {total} applied)"
        if self.extra and (self.applied or not total):
            words += f", then {len(self.extra)} commits that are not in patches/"
        return words


@dataclass(frozen=True)
class Change:
    """What a commit does to a path: mode and blob hash before and after."""

    old_mode: str
    old_blob: str
    mode: str
    blob: str
    deleted: bool


def changes(tree: Path, commit: str) -> dict[str, Change]:
    """What a commit does, per path."""
    raw = git("diff-tree", "-r", "-z", "--no-renames", f"{commit}^", commit, cwd=tree)
    fields = raw.split("\0")
    result = {}
    for entry, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, mode, old_blob, blob, letter = entry.removeprefix(":").split(" ")
        result[path] = Change(old_mode, old_blob, mode, blob, letter == "D")
    return result


def broken_promises(patch: Path, tree: Path, commit: str) -> list[str]:
    """The paths where a commit is not what the patch says by its index lines and modes."""
    wanted = patchfile.promised(patch)
    got = changes(tree, commit)
    return sorted(path for path in wanted | got if not _kept(path, wanted, got))


def _kept(path: str, wanted: dict[str, patchfile.Promise | None], got: dict[str, Change]) -> bool:
    if path not in wanted or path not in got:
        return False
    promise, change = wanted[path], got[path]
    if promise is None or change.deleted:
        return promise is None and change.deleted
    source = got.get(promise.source)
    if source is None:
        return False
    mode, blob = promise.mode or source.old_mode, promise.blob or source.old_blob
    return change.mode == mode and change.blob.startswith(blob)


def commit_text(tree: Path, commit: str) -> patchfile.Text:
    """A commit's author, date and message in the form of patchfile.text."""
    shown = git("show", "-s", "--format=%an <%ae>%n%at%n%B", commit, cwd=tree)
    author, date, message = shown.split("\n", 2)
    return patchfile.Text(author, date, patchfile.tidy(message))


def compare(tree: Path, patches: list[Path]) -> State:
    """How far the patches are applied in the tree. Raises Failure where that can't be told."""
    trees.require_repository(tree)
    base = trees.base_of(tree)
    state = State(base, patches, trees.stack(tree, base), 0)
    for patch, commit in zip(patches, state.stack, strict=False):
        if broken_promises(patch, tree, commit):
            break
        if patchfile.text(patch) != commit_text(tree, commit):
            state.reworded.append(patch)
        state.applied += 1
    return state
