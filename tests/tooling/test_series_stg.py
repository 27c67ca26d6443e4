"""The series as a StGit stack, and back."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from series_lab import Lab

needs_stg = pytest.mark.skipif(not shutil.which("stg"), reason="stg (package stgit) is missing")

IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "Some Body"), ("EMAIL", "some.body@example.com"))
}


def _stg(lab: Lab, *args: str) -> str:
    done = subprocess.run(
        ["stg", *args],
        cwd=lab.vllm,
        env=lab.environment(**IDENTITY),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@needs_stg
@pytest.mark.parametrize("detached", [False, True])
def test_to_a_stack_and_back(applied: Lab, detached: bool) -> None:
    if detached:
        applied.git("checkout", "--quiet", "--detach")
        applied.git("branch", "--delete", "--force", "series")
    before = applied.head(), applied.exported()
    assert "6 StGit patches" in applied.run("stg")
    assert len(_stg(applied, "series", "--applied").splitlines()) == 6
    assert "already applied" in applied.run("apply")
    _stg(applied, "pop")
    assert "stg push --all" in applied.run("stg", code=1)
    assert "partly applied (5 of 6)" in applied.run("status")
    _stg(applied, "push")
    assert "plain stack" in applied.run("stg")
    assert applied.head() == before[0]
    applied.run("export")
    assert applied.exported() == before[1]
    assert "6 StGit patches" in applied.run("stg"), "and again"


def test_missing_stg_names_its_package(applied: Lab, tmp_path: Path) -> None:
    for tool in ("git", "python3"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "")
    assert "stgit" in applied.run("stg", code=1, PATH=str(tmp_path))
