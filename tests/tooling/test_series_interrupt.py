"""Killed at any point: the next run goes on, and no change of the user is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from series_lab import Lab, replace

# Stands in for git; at the given call it does a part of git's work and kills the tool and itself.
# Any of the files that git locks may be locked then.
LOCKS = "index HEAD ORIG_HEAD config packed-refs refs/heads/held refs/tags/base"
WRAPPER = """\
#!/bin/bash
real={git}
case "$*" in
{when}) {work}
  for name in {locks}; do touch ".git/$name.lock"; done
  kill -9 $PPID $$;;
esac
exec "$real" "$@"
"""


def _killed(lab: Lab, tmp_path: Path, command: str, when: str, work: str) -> None:
    """Run a command with a git that, called with arguments like `when`, does `work` and dies."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    git = folder / "git"
    git.write_text(WRAPPER.format(git=shutil.which("git"), when=when, work=work, locks=LOCKS))
    git.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    lab.run(command, code=-signal.SIGKILL, PATH=path)


# What git am may have done of patch 3 when it dies.
NOTHING = ":"
FIRST_FILE = "head -c 100 vllm/a.py > part; mv part vllm/a.py"
WRITTEN = '"$real" apply "${@: -1}"'
STAGED = '"$real" apply --index "${@: -1}"'


@pytest.mark.parametrize("work", [NOTHING, FIRST_FILE, WRITTEN, STAGED])
def test_killed_within_a_patch(lab: Lab, applied: Lab, tmp_path: Path, work: str) -> None:
    _killed(lab, tmp_path, "apply", "am*0003-*", work)
    assert lab.depth() == 2
    lab.run("apply")
    assert lab.head() == applied.head()
    assert lab.changes() == "" and lab.contents() == applied.contents()
    assert not (lab.vllm / ".git/rebase-apply").exists()


def test_killed_within_git_am(lab: Lab, applied: Lab, tmp_path: Path) -> None:
    # A failing am leaves its session; here the tool dies before it can abort it.
    good = lab.patch(3).read_bytes()
    replace(lab.patch(3), "\n-line 30\n", "\n-line thirty-one\n")
    _killed(lab, tmp_path, "apply", "am\\ --abort*", ":")
    assert (lab.vllm / ".git/rebase-apply/applying").exists()
    lab.patch(3).write_bytes(good)
    lab.run("apply")
    assert lab.head() == applied.head() and lab.changes() == ""


def test_users_edit_after_the_kill_is_kept(lab: Lab, applied: Lab, tmp_path: Path) -> None:
    _killed(lab, tmp_path, "apply", "am*0003-*", WRITTEN)
    replace(lab.vllm / "vllm/a.py", "line 20\n", "line twenty, mine\n")
    (lab.vllm / "notes.txt").write_text("mine\n")
    (lab.vllm / ".git/index.lock").unlink()
    output = lab.run("apply", code=1)
    assert "vllm/a.py" in output and "notes.txt" in output and "stash" in output
    assert "docs/crlf.txt" not in output, "that one is the patch's own"
    assert "line twenty, mine" in (lab.vllm / "vllm/a.py").read_text()
    lab.git("stash", "--include-untracked")
    lab.run("apply")
    assert lab.head() == applied.head()
    assert "line twenty, mine" in lab.git("show", "stash@{0}:vllm/a.py")


def test_other_commands_leave_the_recovery_to_apply(lab: Lab, applied: Lab, tmp_path: Path) -> None:
    _killed(lab, tmp_path, "apply", "am*0003-*", WRITTEN)
    lab.run("export", code=1)
    lab.run("stg", code=1)
    lab.run("apply")
    assert lab.head() == applied.head() and lab.changes() == ""


def test_killed_within_unapply(applied: Lab, tmp_path: Path) -> None:
    work = '"$real" checkout base -- vllm/a.py; rm vllm/new_name.py; rm vllm/ops/kernel.py'
    _killed(applied, tmp_path, "unapply", "reset\\ *--keep*", work)
    applied.run("unapply")
    assert applied.depth() == 0 and applied.changes() == ""
    assert b"line three" not in applied.contents()["vllm/a.py"]


def test_killed_while_the_base_is_made(lab: Lab, applied: Lab, tmp_path: Path) -> None:
    _killed(lab, tmp_path, "apply", "commit\\ *", ":")
    assert not lab.vllm.exists()
    lab.run("apply")
    assert lab.head() == applied.head()


def test_killed_within_export(applied: Lab, tmp_path: Path) -> None:
    replace(applied.vllm / "vllm/a.py", "line 20\n", "line twenty\n")
    applied.commit("[Core] A seventh")
    _killed(applied, tmp_path, "export", "*format-patch*", ":")
    applied.run("export")
    assert len(applied.names()) == 7


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
def test_stopped_at_any_time(lab: Lab, applied: Lab, stop: signal.Signals) -> None:
    for step in range(5):
        shutil.rmtree(lab.vllm, ignore_errors=True)
        process = subprocess.Popen(
            lab.command("apply"),
            cwd=Path(__file__).parents[2],
            env=lab.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(0.15 + 0.1 * step)
        if process.poll() is None:
            os.killpg(process.pid, stop)
        process.wait()
        lab.run("apply")
        assert lab.head() == applied.head(), f"stopped after step {step}"
        assert lab.changes() == ""


def test_two_runs_at_once(lab: Lab, applied: Lab) -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "scripts.series", "apply"],
            cwd=Path(__file__).parents[2],
            env=lab.environment(),
            stdout=subprocess.DEVNULL,
        )
        for _ in range(2)
    ]
    assert [run.wait() for run in runs] == [0, 0]
    assert lab.head() == applied.head() and lab.changes() == ""
