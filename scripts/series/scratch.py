"""Scratch trees: the base, or another release, away from vllm/."""

from __future__ import annotations

import shutil
from pathlib import Path

from scripts.common import BASE_VERSION, VLLM, git
from scripts.series import sdist
from scripts.series import tree as trees


def clone(tree: Path) -> str:
    """Make `tree` a clone of vllm/, in place of whatever was there; return the base's commit.

    Nothing is checked out and the objects stay vllm/'s. Raises Failure if vllm/ is no such tree.
    """
    trees.require_repository(VLLM)
    start = trees.base_of(VLLM)
    shutil.rmtree(tree, ignore_errors=True)
    tree.parent.mkdir(parents=True, exist_ok=True)
    git(
        *("clone", "--quiet", "--shared", "--no-checkout", "--template=", VLLM, tree),
        cwd=tree.parent,
    )
    trees.settle(tree)
    return start


def release(version: str, tree: Path) -> str:
    """Make `tree`, which must not exist, a release from its sdist; return its only commit."""
    tree.parent.mkdir(parents=True, exist_ok=True)
    sdist.make_tree(version, tree)
    _lend_objects(tree)
    return trees.head(tree)


def checked_out(version: str, tree: Path) -> str:
    """Make `tree` a release with its files, in place of what was there; return its commit.

    The base comes from vllm/, any other release from its sdist.
    """
    shutil.rmtree(tree, ignore_errors=True)
    if version != BASE_VERSION:
        return release(version, tree)
    start = clone(tree)
    git("reset", "--quiet", "--hard", start, cwd=tree)
    return start


def _lend_objects(tree: Path) -> None:
    """Let the tree read vllm/'s objects: a three-way merge needs the patches' own base."""
    if trees.is_repository(VLLM):
        objects = git("rev-parse", "--path-format=absolute", "--git-path", "objects").rstrip("\n")
        info = trees.git_dir(tree) / "objects" / "info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "alternates").write_text(f"{objects}\n", encoding="utf-8")
