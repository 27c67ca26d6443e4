"""Reads results/ and holds each file to its record: measured on a committed series, and clean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scripts.common import ROOT, Failure, git, run_git
from scripts.harness import result

RESULTS = ROOT / "results"
# Measured text and its discussion, and A/B runs, which name their stack themselves.
UNCHECKED = ("notes", "ab")


@dataclass(frozen=True)
class Result:
    """One file: `name` is its script's, `place` the GPU's folder ("cpu" without one)."""

    path: Path
    data: dict[str, Any]

    @property
    def shown(self) -> str:
        return self.path.relative_to(RESULTS).as_posix()

    @property
    def slug(self) -> str:
        """Its path in one word, for the names of its plots."""
        return self.shown.removesuffix(".json").replace("/", "-")

    @property
    def name(self) -> str:
        return self.data.get("name", self.path.stem)

    @property
    def place(self) -> str:
        return self.path.relative_to(RESULTS).parts[0]

    @property
    def commit(self) -> str:
        return self.data["series"]["commit"]

    @property
    def cells(self) -> dict[str, Any]:
        return self.data.get("cells", {})


def load(folder: Path = RESULTS) -> list[Result]:
    """Every result, by path. Raises Failure naming each that can't be traced, with the remedy."""
    found, wrong = [], []
    for path in sorted(folder.rglob("*.json")):
        if path.relative_to(folder).parts[0] in UNCHECKED:
            continue
        data = result.read(path)
        if reason := why_untraceable(data):
            wrong.append(f"  results/{path.relative_to(folder).as_posix()}: {reason}")
        else:
            found.append(Result(path, data))
    if wrong:
        raise Failure(
            "results that can't be traced to the series:\n"
            + "\n".join(wrong)
            + "\nmeasure them again on the committed series, or take them out of results/"
        )
    return found


def why_untraceable(data: Any) -> str | None:
    """Why a result can't stand in the report; None if it can."""
    if not isinstance(data, dict):
        return "it says nothing of the series that it was measured on"
    if data.get("smoke"):
        return "it is a smoke run's"
    if data.get("dirty"):
        return "it was measured with --allow-dirty, on something else than the committed series"
    commit = (data.get("series") or {}).get("commit")
    if not commit:
        return "it names no commit of the series"
    return why_no_ancestor(commit)


@cache
def why_no_ancestor(commit: str) -> str | None:
    """Why a commit is not one that HEAD descends from; None if it is."""
    if run_git("cat-file", "-e", f"{commit}^{{commit}}", cwd=ROOT).returncode:
        shallow = git("rev-parse", "--is-shallow-repository", cwd=ROOT).strip() == "true"
        hint = ": the clone is shallow (git fetch --unshallow)" if shallow else ""
        return f"its series commit {commit[:12]} is not in this repository{hint}"
    if run_git("merge-base", "--is-ancestor", commit, "HEAD", cwd=ROOT).returncode:
        return f"its series commit {commit[:12]} is not an ancestor of HEAD"
    return None


def named(results: Iterable[Result], *names: str) -> list[Result]:
    """The results of these scripts."""
    return [one for one in results if one.name in names]
