"""Applies the series to vllm/, and takes it off again."""

from __future__ import annotations

from pathlib import Path

from scripts.common import BASE_VERSION, VLLM, Failure, git, run_git, say, series, warn
from scripts.series import base, compare, patchfile
from scripts.series import tree as trees
from scripts.series.lock import locked
from scripts.series.recover import recover

_SAVED = "saved-series"


def apply(*, if_needed: bool = False) -> None:
    """Bring the base, then apply what is missing of patches/series.

    With if_needed a fully applied series is enough, even with uncommitted edits on top.
    Raises Failure if the tree is dirty, if the stack holds commits that the series does not
    have where patches are missing, or if a patch does not apply.
    """
    patches = series()
    with locked("apply") as run:
        base.bring()
        recover(VLLM, patches, run)
        if if_needed and _complete(patches):
            return
        trees.require_clean(VLLM)
        state = compare.compare(VLLM, patches)
        if state.missing and state.extra:
            raise Failure(_foreign(state))
        trees.branch(VLLM)
        for number, patch in enumerate(state.missing, state.applied + 1):
            say(f"applying {number}/{len(patches)} {patch.name}")
            apply_patch(VLLM, patch)
        done = "applied" if state.missing else "already applied"
        say(f"{len(patches)} of {len(patches)} patches are {done} on v{BASE_VERSION}")
        _remark(state)


def _complete(patches: list[Path]) -> bool:
    if trees.unfinished(VLLM):
        return False
    state = compare.compare(VLLM, patches)
    if not state.complete:
        return False
    edited = trees.dirty(VLLM)
    with_edits = f", with uncommitted edits:\n{trees.listed(edited)}" if edited else ""
    say(f"{len(patches)} of {len(patches)} patches are applied on v{BASE_VERSION}{with_edits}")
    _remark(state)
    return True


def _remark(state: compare.State) -> None:
    if state.reworded:
        names = ", ".join(patch.name for patch in state.reworded)
        warn(f"message, author or date in vllm/ differ from {names} (make status)")
    if state.extra and state.complete:
        warn(f"{len(state.extra)} commits above the series are not in patches/: make export")


def _foreign(state: compare.State) -> str:
    commits = trees.listed(
        [f"{commit[:12]} {trees.subject(VLLM, commit)}" for commit in state.extra]
    )
    after = f"above patch {state.applied}" if state.applied else "on the base"
    return (
        f"vllm/ holds {len(state.extra)} commits {after} that patches/ does not have in this "
        f"form:\n{commits}\n"
        "if they are your work: make export writes them to patches/\n"
        "if patches/ is newer: python3 -m scripts.series unapply --save puts the stack on a "
        "branch, then make apply"
    )


def apply_patch(tree: Path, patch: Path) -> None:
    """Apply one patch as one commit, and check every file against the patch's own hashes.

    On Failure the tree is as before.
    """
    before = trees.head(tree)
    done = run_git(
        *("am", "--quiet", "--keep-non-patch", "--keep-cr", "--no-3way", "--no-scissors"),
        *("--whitespace=nowarn", "--no-gpg-sign", "--committer-date-is-author-date", patch),
        cwd=tree,
    )
    if done.returncode:
        run_git("am", "--abort", cwd=tree)
        _require_unchanged(tree, before, patch)
        reason = patchfile.why_it_fails(patch, tree) or done.stderr.decode(errors="replace")
        raise Failure(
            f"{patch.name} does not apply:\n{reason.rstrip()}\n"
            "the tree is as it was before this patch; the patches before it stay applied "
            "(make unapply takes them off). Mend the patch, then make apply"
        )
    wrong = compare.broken_promises(patch, tree, "HEAD")
    if wrong:
        git("reset", "--quiet", "--keep", before, cwd=tree)
        raise Failure(
            f"{patch.name} gives other contents than its index lines promise:\n"
            f"{trees.listed(wrong)}\n"
            "the patch was edited by hand: git -C vllm am --keep-non-patch it, then make export "
            "writes its hashes anew. The tree is as it was before this patch"
        )


def _require_unchanged(tree: Path, before: str, patch: Path) -> None:
    if trees.head(tree) != before or trees.unfinished(tree) or trees.dirty(tree):
        raise Failure(
            f"{patch.name} does not apply, and git am could not be undone: see git -C vllm status"
        )


def unapply(*, save: bool = False) -> None:
    """Take the series off: vllm/ is the plain base afterwards.

    Raises Failure if that would lose something: uncommitted changes, or commits that patches/
    does not have. With save those are kept on a branch in vllm/ instead.
    """
    base.require()
    patches = series()
    with locked("unapply") as run:
        recover(VLLM, patches, run)
        trees.require_clean(VLLM)
        state = compare.compare(VLLM, patches)
        if not state.stack:
            say(f"vllm/ is the plain base already (v{BASE_VERSION})")
            return
        if save:
            say(f"the stack stays on branch {_save(state)} in vllm/")
        elif state.extra or state.reworded:
            raise Failure(_unexported(state))
        git("reset", "--quiet", "--keep", state.base, cwd=VLLM)
        say(f"took {len(state.stack)} commits off: vllm/ is the plain base (v{BASE_VERSION})")


def _unexported(state: compare.State) -> str:
    commits = [f"{commit[:12]} {trees.subject(VLLM, commit)}" for commit in state.extra]
    commits += [f"{patch.name} (message, author or date)" for patch in state.reworded]
    return (
        f"vllm/ holds what patches/ does not:\n{trees.listed(commits)}\n"
        "make export writes it to patches/; or python3 -m scripts.series unapply --save puts "
        "the stack on a branch"
    )


def _save(state: compare.State) -> str:
    name = f"{_SAVED}/{state.stack[-1][:12]}"
    git("branch", "--force", name, state.stack[-1], cwd=VLLM)
    return name
