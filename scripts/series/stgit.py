"""The series as a StGit stack, for people who like to edit it so, and back."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from scripts.common import Failure, git_env, say
from scripts.series import base
from scripts.series import tree as trees
from scripts.series.lock import locked


def toggle() -> None:
    """Turn the commits above the base into StGit patches; a StGit stack back into commits.

    Raises Failure if stg is not installed, the tree is dirty, or StGit patches are popped.
    """
    if not shutil.which("stg"):
        raise Failure(
            "stg is not installed: it is in the package stgit (apt install stgit). The series "
            "itself needs git alone"
        )
    tree = base.require()
    with locked("stg"):
        trees.require_clean(tree)
        branch = trees.branch(tree)
        if not branch:
            raise Failure(
                "vllm/ is on no branch, and there is a branch `series` already: check it out, or "
                "delete it if it is old (git -C vllm branch -D series)"
            )
        if _is_stack(tree):
            _back(tree, branch)
            return
        commits = trees.stack(tree, trees.base_of(tree))
        _stg(tree, "init")
        if commits:
            _stg(tree, "uncommit", f"--number={len(commits)}")
        say(f"{len(commits)} StGit patches on branch {branch}: cd vllm && stg series")
        say("after editing: make stg turns them back into commits, make export writes patches/")


def _is_stack(tree: Path) -> bool:
    return _run(tree, "series", "--all").returncode == 0


def _back(tree: Path, branch: str) -> None:
    popped = _stg(tree, "series", "--unapplied", "--noprefix").split()
    if popped:
        raise Failure(
            f"these StGit patches are not applied: {', '.join(popped)}\n"
            "push them (cd vllm && stg push --all) or delete them (stg delete), then make stg"
        )
    if _stg(tree, "series", "--applied", "--noprefix").split():
        _stg(tree, "commit", "--all")
    _stg(tree, "branch", "--cleanup")
    say(f"branch {branch} is a plain stack of commits again")


def _run(tree: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run stg in the tree; raises nothing on failure."""
    return subprocess.run(
        ["stg", *args], cwd=tree, env=git_env(), capture_output=True, text=True, check=False
    )


def _stg(tree: Path, *args: str) -> str:
    done = _run(tree, *args)
    if done.returncode:
        detail = (done.stderr or done.stdout).strip()
        raise Failure(f"stg {' '.join(args)} failed in {tree}:\n{detail}")
    return done.stdout
