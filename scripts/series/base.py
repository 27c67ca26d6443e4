"""Brings the base into vllm/: the submodule's commit, or the same release's sdist."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from scripts.common import (
    BASE_COMMIT,
    BASE_VERSION,
    ROOT,
    VLLM,
    WORK,
    Failure,
    git,
    git_env,
    run_git,
    say,
)
from scripts.series import sdist, tree

_PROBE_S = 10.0
_CLONE_S = 900.0


def bring() -> None:
    """Make sure that vllm/ is a git tree that descends from the base; keep one that does.

    The tree is made beside vllm/ and moved there whole, so an interruption leaves nothing.
    Raises Failure if vllm/ holds something else, or if no source answers.
    """
    if VLLM.is_dir() and any(VLLM.iterdir()):
        tree.require_repository(VLLM)
        _name_base(VLLM)
        tree.settle(VLLM)
        return
    WORK.mkdir(parents=True, exist_ok=True)
    fresh = WORK / "base"
    shutil.rmtree(fresh, ignore_errors=True)
    if not _from_remote(fresh):
        shutil.rmtree(fresh, ignore_errors=True)
        sdist.make_tree(BASE_VERSION, fresh)
    _name_base(fresh)
    tree.settle(fresh)
    if VLLM.is_dir():
        VLLM.rmdir()
    fresh.replace(VLLM)
    say(f"vllm/ is the base: v{BASE_VERSION} ({BASE_COMMIT[:12]})")


def _name_base(folder: Path) -> None:
    """Tag the base for people (git -C vllm log base..); the tools find it by its content."""
    commit = tree.base_of(folder)
    if run_git("rev-parse", "--verify", "--quiet", "refs/tags/base", cwd=folder).returncode:
        git("tag", "base", commit, cwd=folder)


def _from_remote(folder: Path) -> bool:
    """Fetch the pinned commit alone from the submodule's remote; False if that fails."""
    url = git(
        *("config", "--file", ROOT / ".gitmodules", "--get", "submodule.vllm.url"),
        cwd=ROOT,
        check=False,
    ).strip()
    if not url:
        say("no submodule is set in .gitmodules: taking the release's sdist")
        return False
    say(f"asking the submodule's remote {url}")
    if not _answers(["ls-remote", "--quiet", url, "HEAD"], ROOT, _PROBE_S):
        say("  no answer: taking the release's sdist, which holds the same files")
        return False
    say(f"fetching {BASE_COMMIT[:12]}")
    git("init", "--quiet", "--initial-branch=series", "--template=", folder, cwd=ROOT)
    git("remote", "add", "origin", url, cwd=folder)
    fetch = ["fetch", "--depth=1", "--no-tags", "--progress", "origin", BASE_COMMIT]
    if not _answers(fetch, folder, _CLONE_S, show=True):
        say("  the fetch failed: taking the release's sdist, which holds the same files")
        return False
    git("reset", "--quiet", "--hard", BASE_COMMIT, cwd=folder)
    # As `git submodule init` does, so that git submodule commands know it too.
    run_git("submodule", "--quiet", "init", "vllm", cwd=ROOT)
    return True


def _answers(command: list[str], folder: Path, limit_s: float, *, show: bool = False) -> bool:
    output = None if show else subprocess.DEVNULL
    try:
        done = subprocess.run(
            ["git", *command],
            cwd=folder,
            env=git_env(user_config=True),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def require() -> Path:
    """vllm/ as a tree on the base. Raises Failure, naming make apply, if it is not there."""
    tree.require_repository(VLLM)
    if not run_git("rev-parse", "--verify", "HEAD^{commit}", cwd=VLLM).stdout:
        raise Failure("vllm/ has no commit: move it away, then make apply")
    return VLLM
