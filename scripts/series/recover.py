"""Puts a tree right that a killed apply or unapply has left half written."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from scripts.common import Failure, git, run_git, say
from scripts.series import patchfile
from scripts.series import tree as trees
from scripts.series.lock import Run


def recover(tree: Path, patches: list[Path], run: Run) -> None:
    """Undo a half-written step, so that the tree is the last whole commit again.

    Acts only after an interrupted run of these tools, or on an unfinished git am of one of the
    patches. A file is rewritten only if it is what git was writing: a version that the base, the
    stack or a patch holds, or the beginning of one. Anything else is the user's: Failure.
    """
    directory = trees.git_dir(tree)
    session = directory / "rebase-apply"
    if not run.interrupted and not _is_ours(session, patches):
        return
    # The lock of the series' tools is held, their git with it: no git of theirs owns these.
    for lock in [*directory.glob("*.lock"), *(directory / "refs").rglob("*.lock")]:
        lock.unlink(missing_ok=True)
    if not (session / "rebasing").exists():
        # As git am --quit, which needs a session that was written to its end.
        shutil.rmtree(session, ignore_errors=True)
    paths = trees.dirty(tree)
    if paths:
        _restore(tree, paths, _versions(tree, patches))
    run.interrupted = False


def _restore(tree: Path, paths: list[str], known: dict[str, set[str]]) -> None:
    """Write the paths as HEAD has them, if all hold known versions. Raises Failure otherwise."""
    foreign = [path for path in paths if not _explained(tree, path, known.get(path, set()))]
    if foreign:
        raise Failure(
            "an interrupted run left vllm/ half written, and these files hold something that "
            f"neither the base nor a patch holds:\n{trees.listed(foreign)}\n"
            "put them aside (git -C vllm stash -u; bring back: git -C vllm stash pop), then run "
            "the same command again"
        )
    say(f"an interrupted run left {len(paths)} files half written: restoring them")
    git("reset", "--quiet", cwd=tree)
    for path in paths:
        (tree / path).unlink(missing_ok=True)
    kept = git("ls-files", "-z", cwd=tree).split("\0")
    restore = "".join(f"{path}\0" for path in sorted(set(paths) & set(kept)))
    git("checkout-index", "--force", "--index", "-z", "--stdin", cwd=tree, input=restore)


def _is_ours(session: Path, patches: Iterable[Path]) -> bool:
    """True if an unfinished git am is that of one of the patches."""
    mail = session / "0001"
    if not mail.exists():
        return False
    content = mail.read_bytes().strip()
    return any(content == patch.read_bytes().strip() for patch in patches)


def _versions(tree: Path, patches: list[Path]) -> dict[str, set[str]]:
    """Per path: the blobs it has in the base, in the stack's commits and after each patch."""
    base = trees.base_of(tree)
    touched = {path for patch in patches for path in patchfile.promised(patch)}
    touched |= set(
        git("diff", "--name-only", "-z", "--no-renames", base, "HEAD", cwd=tree).split("\0")
    )
    touched.discard("")
    known: dict[str, set[str]] = {path: set() for path in touched}
    for commit in [base, *trees.stack(tree, base)]:
        _note(known, git("ls-tree", "-r", "-z", commit, cwd=tree))
    # A patch's own versions may not be in the repository yet: an index apart brings them there.
    with tempfile.TemporaryDirectory() as scratch:
        apart = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        for start in (base, "HEAD"):
            git("read-tree", start, cwd=tree, env=apart)
            for patch in patches:
                run_git("apply", "--cached", "--whitespace=nowarn", patch, cwd=tree, env=apart)
                entries = git("ls-files", "-s", "-z", cwd=tree, env=apart)
                _note(known, entries)
    return known


def _note(known: dict[str, set[str]], entries: str) -> None:
    for entry in entries.split("\0"):
        facts, _, path = entry.partition("\t")
        if path in known:
            # "mode type hash" from ls-tree, "mode hash stage" from ls-files.
            known[path] |= {word for word in facts.split() if len(word) >= patchfile.FULL_HASH}


def _explained(tree: Path, path: str, blobs: set[str]) -> bool:
    """True if the file, and its entry in the index, are versions of it or a beginning of one."""
    if not blobs:
        return False
    staged = git("ls-files", "-s", "-z", "--", f":(literal){path}", cwd=tree).split()
    if staged and staged[1] not in blobs:
        return False
    file = tree / path
    if not file.exists():
        return True
    content = file.read_bytes()
    return any(
        run_git("cat-file", "blob", blob, cwd=tree).stdout.startswith(content) for blob in blobs
    )
