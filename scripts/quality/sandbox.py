"""Executes what a model wrote, in a process with limits.

Limits: wall and processor time, memory, size of files; a folder of its own, which is removed; no
write outside of it, no process, no signal, no network. Writes and processes are refused by an audit
hook inside the process, the network by a namespace of its own too, where the system allows one.
That holds off accidents of a model's code, not an attacker: for that run it in a virtual machine.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GUARD = Path(__file__).with_name("guard.py")
NETLESS = ("unshare", "--user", "--map-root-user", "--net", "--")


@dataclass(frozen=True)
class Limits:
    """Of one program: wall seconds, and bytes of address space."""

    seconds: float = 10.0
    memory: int = 1 << 30


@dataclass(frozen=True)
class Outcome:
    """Whether a program ran to its end; else why not."""

    passed: bool
    why: str = ""


@cache
def netless() -> tuple[str, ...]:
    """The command prefix that takes the network away; empty where the system has none."""
    try:
        done = subprocess.run([*NETLESS, "true"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return NETLESS if done.returncode == 0 else ()


def execute(program: str, limits: Limits | None = None) -> Outcome:
    """Run Python source to its end under limits."""
    limits = limits or Limits()
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="answer-") as folder:
        inner = [sys.executable, "-I", str(GUARD), token]
        process = subprocess.Popen(
            [*netless(), *inner, str(int(limits.seconds) + 1), str(limits.memory)],
            cwd=folder,
            env={"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, error = process.communicate(program.encode(), timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return Outcome(False, f"ran longer than {limits.seconds:g} s")
    if process.returncode == 0 and out == token.encode():
        return Outcome(True)
    lines = error.decode(errors="replace").strip().splitlines()
    return Outcome(False, lines[-1] if lines else f"ended early (exit {process.returncode})")


def execute_all(programs: list[str], limits: Limits | None = None) -> list[Outcome]:
    """Run programs, as many at a time as there are cores."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(lambda program: execute(program, limits), programs))
