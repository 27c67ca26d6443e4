"""Applies the series to another release in a scratch tree and says patch by patch how it went.

clean             every hunk applies with its whole context; hunks that moved are counted
already upstream  the patch applies in reverse, or merging it changes nothing
fuzzy             it applies only by a three-way merge, or with one line of context: to be read
conflict          it doesn't apply; the hunks that fail are printed

patches/ports/VERSION/NNNN-*.patch replaces patch NNNN there and is judged in its place. Each
patch is tried on top of those that worked; those are commits in the scratch tree, so that a port
can be made from it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from scripts.common import PATCHES, VLLM, WORK, Failure, git, run_git, say, series, warn
from scripts.series import patchfile, sdist
from scripts.series import tree as trees

CLEAN, UPSTREAM, FUZZY, CONFLICT = "clean", "already upstream", "fuzzy", "conflict"
GOOD = (CLEAN, UPSTREAM)
_MOVED = re.compile(rb"^Hunk #\d+ succeeded at \d+ \(offset ", re.MULTILINE)
_PIECES = re.compile(r"^(?=diff --git |@@ )", re.MULTILINE)


@dataclass(frozen=True)
class FailedHunk:
    """A hunk that doesn't apply: its file, git's reason and the hunk's text."""

    file: str
    reason: str
    text: str


@dataclass
class Outcome:
    """How one patch went. file is what was applied: the patch, or its port (port is true)."""

    patch: str
    file: str
    port: bool
    result: str = CONFLICT
    note: str = ""
    hunks: list[FailedHunk] = field(default_factory=list)


def check_upstream(version: str, scratch: Path | None = None) -> int:
    """Try the series on a release, print and save the report; 0 if all is clean or upstream.

    scratch is where the tree goes (.work/upstream/ without one); it must be empty. Raises Failure
    if the release can't be fetched or the series can't be read.
    """
    patches = series()
    chosen = {patch: port_of(patch, version) for patch in patches}
    _warn_of_stray_ports(version, set(chosen.values()))
    tree = _scratch_tree(version, scratch)
    outcomes = []
    for number, (patch, file) in enumerate(chosen.items(), 1):
        outcome = try_patch(tree, patch, file)
        outcomes.append(outcome)
        _print(outcome, f"[{number}/{len(patches)}]")
    counts = Counter(outcome.result for outcome in outcomes)
    words = ", ".join(f"{count} {result}" for result, count in counts.items())
    report = WORK / "upstream" / f"{version}.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    data = {"version": version, "patches": [asdict(outcome) for outcome in outcomes]}
    report.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    say(f"{version}: {words or 'no patches'} (report: {report}; tree: {tree})")
    return 0 if all(outcome.result in GOOD for outcome in outcomes) else 1


def port_of(patch: Path, version: str) -> Path:
    """The port that replaces the patch on that release, or the patch itself."""
    found = sorted((PATCHES / "ports" / version).glob(f"{_number(patch)}-*.patch"))
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise Failure(f"patches/ports/{version} holds two ports of {patch.name}: {names}")
    return found[0] if found else patch


def try_patch(tree: Path, patch: Path, file: Path) -> Outcome:
    """Apply the file (the patch or its port) and commit it, or leave the tree as it was."""
    outcome = Outcome(patch.name, file.name, port=file != patch)
    applied = run_git("apply", "--index", "--verbose", file, cwd=tree)
    if applied.returncode == 0:
        outcome.result = CLEAN
        moved = len(_MOVED.findall(applied.stderr))
        outcome.note = f"{_hunks(moved)} moved" if moved else ""
    elif run_git("apply", "--index", "--check", "--reverse", file, cwd=tree).returncode == 0:
        outcome.result = UPSTREAM
    elif run_git("apply", "--index", "--3way", file, cwd=tree).returncode == 0:
        outcome.result = FUZZY
        outcome.note = "by three-way merge"
        if run_git("diff", "--cached", "--quiet", cwd=tree).returncode == 0:
            outcome.result = UPSTREAM
    else:
        # The merge has left its conflicts in the tree.
        git("reset", "--quiet", "--hard", cwd=tree)
        if run_git("apply", "--index", "-C1", file, cwd=tree).returncode == 0:
            outcome.result = FUZZY
            outcome.note = "with one line of context"
        else:
            outcome.hunks = list(failed_hunks(tree, file))
            outcome.note = f"in {_hunks(len(outcome.hunks))}"
    if outcome.result in (CLEAN, FUZZY):
        git("commit", "--quiet", "-F", "-", cwd=tree, input=patchfile.text(file).message)
    return outcome


def failed_hunks(tree: Path, patch: Path) -> Iterator[FailedHunk]:
    """Each hunk that doesn't apply on its own, with git's reason."""
    content = patch.read_bytes().decode(errors="surrogateescape")
    header = ""
    for piece in _PIECES.split(content)[1:]:
        if piece.startswith("diff --git "):
            header = piece
            continue
        single = (header + piece).encode(errors="surrogateescape")
        done = run_git("apply", "--check", "--index", "-", cwd=tree, input=single)
        if done.returncode:
            name = header.splitlines()[0].rpartition(" b/")[2]
            error = done.stderr.decode(errors="replace").strip().splitlines()[-1]
            there = run_git("apply", "--check", "--index", "-R", "-", cwd=tree, input=single)
            reason = "is there already"
            if there.returncode:
                reason = error.removeprefix("error: ").removeprefix(f"{name}: ")
            yield FailedHunk(name, reason, single.decode(errors="replace")[len(header) :].rstrip())


def _hunks(count: int) -> str:
    return f"{count} hunk{'' if count == 1 else 's'}"


def _number(patch: Path) -> str:
    return patch.name.partition("-")[0]


def _warn_of_stray_ports(version: str, used: set[Path]) -> None:
    for file in sorted((PATCHES / "ports" / version).glob("*.patch")):
        if file not in used:
            warn(f"{file.name} in patches/ports/{version} replaces no patch of the series")


def _scratch_tree(version: str, scratch: Path | None) -> Path:
    """A fresh git tree of the release. Only the default place is ever cleared."""
    if scratch is None:
        tree = WORK / "upstream" / f"vllm-{version}"
        shutil.rmtree(tree, ignore_errors=True)
    else:
        tree = scratch.resolve()
        if tree.exists() and (not tree.is_dir() or any(tree.iterdir())):
            raise Failure(f"{tree} is no empty folder: name another, or leave --scratch out")
        if tree.exists():
            tree.rmdir()
    tree.parent.mkdir(parents=True, exist_ok=True)
    if sdist.pinned_sha256(version) is None:
        seen = hashlib.sha256(sdist.fetch(version).read_bytes()).hexdigest()
        say(f"v{version} is not pinned; the sdist taken has sha256 {seen}")
    sdist.make_tree(version, tree)
    _lend_objects(tree)
    return tree


def _lend_objects(tree: Path) -> None:
    """Let the tree read vllm/'s objects: a three-way merge needs the patches' own base."""
    if trees.is_repository(VLLM):
        objects = git("rev-parse", "--path-format=absolute", "--git-path", "objects").rstrip("\n")
        info = trees.git_dir(tree) / "objects" / "info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "alternates").write_text(f"{objects}\n", encoding="utf-8")


def _print(outcome: Outcome, place: str) -> None:
    port = " (port)" if outcome.port else ""
    note = f": {outcome.note}" if outcome.note else ""
    say(f"{place} {outcome.file}{port}  {outcome.result}{note}")
    for hunk in outcome.hunks:
        say(f"    {hunk.file}: {hunk.reason}")
        say("\n".join(f"        {line}" for line in hunk.text.splitlines()))
