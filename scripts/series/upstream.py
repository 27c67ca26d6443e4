"""Applies the series to another release in a scratch tree and says patch by patch how it went.

clean             every hunk applies with its whole context; hunks that moved are counted
already upstream  the patch applies in reverse, or merging it changes nothing
fuzzy             it applies only by a three-way merge, or with one line of context: to be read
conflict          it doesn't apply; the hunks that fail are printed

patches/ports/VERSION/NNNN-*.patch replaces patch NNNN there and is judged in its place. Each
patch is tried on top of those that worked; those are commits in the scratch tree, so that a port
can be made from it. A file that the series adds (a kernel) is the same in a port, byte for byte,
unless the port's message has a line `Differs: PATH: REASON`.

Then what drifted under the hunks, by file and function: see scripts/series/drift.py.
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

from scripts.common import (
    BASE_VERSION,
    PATCHES,
    VLLM,
    WORK,
    Failure,
    git,
    run_git,
    say,
    series,
    warn,
)
from scripts.series import drift, patchfile, scratch, sdist
from scripts.series import tree as trees

CLEAN, UPSTREAM, FUZZY, CONFLICT = "clean", "already upstream", "fuzzy", "conflict"
GOOD = (CLEAN, UPSTREAM)
_MOVED = re.compile(rb"^Hunk #\d+ succeeded at \d+ \(offset ", re.MULTILINE)
_DIFFERS = re.compile(r"^Differs: (\S+): \S", re.MULTILINE)
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


@dataclass(frozen=True)
class Differing:
    """A file of the series with other contents (or none) in a port; explained in its message?"""

    port: str
    path: str
    explained: bool


def check_upstream(version: str, place: Path | None = None) -> int:
    """Try the series on a release, print and save the report; 0 if all is clean or upstream.

    place is where the tree goes (.work/upstream/ without one); it must be empty. Raises Failure
    if the release can't be fetched or the series can't be read.
    """
    patches = series()
    chosen = {patch: port_of(patch, version) for patch in patches}
    _warn_of_stray_ports(version, set(chosen.values()))
    tree = _scratch_tree(version, place)
    start = trees.head(tree)
    outcomes = []
    for number, (patch, file) in enumerate(chosen.items(), 1):
        outcome = try_patch(tree, patch, file)
        outcomes.append(outcome)
        _print(outcome, f"[{number}/{len(patches)}]")
    others = differing(version)
    for one in others:
        say(f"not the same file in both: {one.path}, in {one.port}")
        if not one.explained:
            say(f"    its message has no line `Differs: {one.path}: REASON`")
    drifted = _drift(patches, version, tree, start)
    counts = Counter(outcome.result for outcome in outcomes)
    words = ", ".join(f"{count} {result}" for result, count in counts.items())
    report = WORK / "upstream" / f"{version}.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "version": version,
        "patches": [asdict(outcome) for outcome in outcomes],
        "differing": [asdict(one) for one in others],
        "drift": [asdict(one) for one in drifted],
    }
    report.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    say(f"{version}: {words or 'no patches'} (report: {report}; tree: {tree})")
    good = all(outcome.result in GOOD for outcome in outcomes)
    return 0 if good and all(one.explained for one in others) else 1


def _drift(patches: list[Path], version: str, tree: Path, start: str) -> list[drift.Drift]:
    """Find and print what drifted; nothing where there is no base to compare with."""
    if not trees.is_repository(VLLM):
        say("vllm/ holds no base: make apply, and what drifted can be told")
        return []
    found = drift.drift(patches, tree, start)
    same = sum(one.state == drift.SAME for one in found)
    say(f"under the hunks, from v{BASE_VERSION} to v{version}: {same} of {len(found)} places same")
    patch = ""
    for one in found:
        if one.state != drift.SAME:
            if one.patch != patch:
                patch = one.patch
                say(f"  {patch}")
            function = f" {one.function}" if one.function else ""
            note = f": {one.note}" if one.note else ""
            say(f"    {one.state:8} {one.file}{function}{note}")
    return found


def differing(version: str) -> list[Differing]:
    """The files that the series adds whose contents are others in a port, patch by patch."""
    added: set[str] = set()
    found = []
    for patch in series():
        ours = {file.path: file for file in patchfile.files(patch)}
        added |= {path for path, file in ours.items() if file.old is None}
        port = port_of(patch, version)
        if port == patch:
            continue
        theirs = {file.path: file for file in patchfile.files(port)}
        explained = set(_DIFFERS.findall(patchfile.text(port).message))
        new = {path for path, file in theirs.items() if file.old is None}
        for path in sorted((added & (ours.keys() | theirs.keys())) | new):
            blobs = {files[path].new_blob if path in files else "" for files in (ours, theirs)}
            if len(blobs) > 1:
                found.append(Differing(port.name, path, path in explained))
    return found


def port_of(patch: Path, version: str) -> Path:
    """The port that replaces the patch on that release, or the patch itself."""
    found = sorted((PATCHES / "ports" / version).glob(f"{number(patch)}-*.patch"))
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


def number(patch: Path) -> str:
    return patch.name.partition("-")[0]


def _warn_of_stray_ports(version: str, used: set[Path]) -> None:
    for file in sorted((PATCHES / "ports" / version).glob("*.patch")):
        if file not in used:
            warn(f"{file.name} in patches/ports/{version} replaces no patch of the series")


def _scratch_tree(version: str, place: Path | None) -> Path:
    """A fresh git tree of the release. Only the default place is ever cleared."""
    if place is None:
        tree = WORK / "upstream" / f"vllm-{version}"
        shutil.rmtree(tree, ignore_errors=True)
    else:
        tree = place.resolve()
        if tree.exists() and (not tree.is_dir() or any(tree.iterdir())):
            raise Failure(f"{tree} is no empty folder: name another, or leave --scratch out")
        if tree.exists():
            tree.rmdir()
    if sdist.pinned_sha256(version) is None:
        seen = hashlib.sha256(sdist.fetch(version).read_bytes()).hexdigest()
        say(f"v{version} is not pinned; the sdist taken has sha256 {seen}")
    scratch.release(version, tree)
    return tree


def _print(outcome: Outcome, place: str) -> None:
    port = " (port)" if outcome.port else ""
    note = f": {outcome.note}" if outcome.note else ""
    say(f"{place} {outcome.file}{port}  {outcome.result}{note}")
    for hunk in outcome.hunks:
        say(f"    {hunk.file}: {hunk.reason}")
        say("\n".join(f"        {line}" for line in hunk.text.splitlines()))
