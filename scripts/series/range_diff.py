"""What changed between an older version of patches/ and the one in the working tree.

`make range-diff OLD=<tag>`: both are applied to the base in a scratch tree, and `git range-diff`
compares the stacks. Patches are paired by content: one that was renamed or moved is still itself.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from scripts.common import (
    BASE_COMMIT,
    ROOT,
    WORK,
    Failure,
    git,
    run_git,
    say,
    series,
    series_names,
)
from scripts.series import apply, scratch
from scripts.series.lock import locked

_ROW = re.compile(r"^ *(\d+|-): +([0-9a-f]+|-+) ([=!<>]) *(\d+|-): +([0-9a-f]+|-+) (.*)$")
_PATCHES = "patches"


def range_diff(old: str) -> None:
    """Print what became of each patch, then the differences.

    Raises Failure if `old` is no commit that has a series, or one on another base.
    """
    commit = _commit(old)
    with locked("range-diff", name="range-diff") as run, tempfile.TemporaryDirectory() as folder:
        run.interrupted = False
        before = _patches_at(commit, Path(folder))
        after = series()
        tree = WORK / "range-diff"
        start = scratch.clone(tree)
        for name, patches in (("old", before), ("new", after)):
            git("checkout", "--quiet", "--force", "-B", name, start, cwd=tree)
            say(f"applying the {name} series: {len(patches)} patches")
            for patch in patches:
                apply.apply_patch(tree, patch)
        ranges = [f"{start}..{name}" for name in ("old", "new")]
        rows = git("range-diff", "--no-color", "--no-patch", *ranges, cwd=tree)
        details = git("range-diff", "--no-color", *ranges, cwd=tree)
    for line in _summary(rows, [p.name for p in before], [p.name for p in after]):
        say(line)
    changed = [block for block in _blocks(details) if "\n" in block.strip()]
    if changed:
        say("\n" + "".join(changed).rstrip())


def _commit(old: str) -> str:
    found = run_git("rev-parse", "--verify", "--quiet", f"{old}^{{commit}}", cwd=ROOT)
    if not old or found.returncode:
        tags = ", ".join(git("tag", cwd=ROOT, check=False).split()) or "none"
        raise Failure(f"{old or 'OLD='} is no commit of this repository (tags: {tags})")
    return found.stdout.decode().strip()


def _patches_at(commit: str, folder: Path) -> list[Path]:
    """The series at a commit of our repository, written to the folder."""
    entry = git("ls-tree", commit, "--", "vllm", cwd=ROOT).split()
    if entry[:2] == ["160000", "commit"] and entry[2] != BASE_COMMIT:
        raise Failure(
            f"at {commit[:12]} the series lay on another base ({entry[2][:12]}): compare the "
            f"patches themselves with git diff {commit[:12]} -- patches"
        )
    for path in git("ls-tree", "-z", "--name-only", f"{commit}:{_PATCHES}", cwd=ROOT).split("\0"):
        if path:
            blob = run_git("cat-file", "blob", f"{commit}:{_PATCHES}/{path}", cwd=ROOT)
            if blob.returncode == 0:
                (folder / path).write_bytes(blob.stdout)
    if not (folder / "series").exists():
        raise Failure(f"{commit[:12]} has no patches/series")
    return [folder / name for name in series_names(folder)]


def _summary(rows: str, before: list[str], after: list[str]) -> list[str]:
    """One line for each patch: added, dropped, changed, renamed, moved or the same."""
    lines = []
    for row in rows.splitlines():
        found = _ROW.match(row)
        if not found:
            raise Failure(f"git range-diff prints what this can't read: {row}")
        old, _, sign, new, _, _ = found.groups()
        if sign == "<":
            lines.append(f"dropped    {before[int(old) - 1]}")
        elif sign == ">":
            lines.append(f"added      {after[int(new) - 1]}")
        else:
            lines.append(_pair(before[int(old) - 1], after[int(new) - 1], sign == "!"))
    return lines


def _pair(old: str, new: str, changed: bool) -> str:
    number, _, slug = old.partition("-")
    new_number, _, new_slug = new.partition("-")
    words = ["changed"] if changed else []
    if slug != new_slug:
        words.append("renamed")
    if number != new_number:
        words.append("moved")
    was = f" (was {old})" if old != new else ""
    return f"{', '.join(words) or 'same':10} {new}{was}"


def _blocks(details: str) -> list[str]:
    """The output of git range-diff, cut at each patch's first line."""
    blocks: list[str] = []
    for line in details.splitlines(keepends=True):
        if _ROW.match(line.rstrip("\n")) or not blocks:
            blocks.append("")
        blocks[-1] += line
    return blocks
