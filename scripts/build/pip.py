"""pip in a child process, its output folded into one line of progress."""

import os
import subprocess
import sys
from pathlib import Path

from scripts.common import Failure

# What pip prints for each package, by the first word: shown as a count.
COUNTED = "Collecting "
KEPT_LINES = 25


def pip(python: Path | str, *args: str, label: str, total: int = 1) -> None:
    """Run `python -m pip args`, showing `label` and how many of `total` packages were collected."""
    env = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    process = subprocess.Popen(
        [str(python), "-m", "pip", *args, "--progress-bar", "off"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
    )
    assert process.stdout is not None
    tail: list[str] = []
    collected = 0
    try:
        for line in process.stdout:
            tail = [*tail[-KEPT_LINES:], line]
            collected += line.startswith(COUNTED)
            if line.startswith("Installing collected"):
                show(f"{label}: installing {collected}")
            elif line.startswith(COUNTED):
                show(f"{label}: {collected} of {total}")
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if process.wait():
        raise Failure(
            f"pip failed while {label}:\n{''.join(tail)}\nRun the command again to retry."
        )
    show(f"{label}: done", end="\n")


def show(text: str, end: str = "") -> None:
    """One line, rewritten in place on a terminal and printed only when complete elsewhere."""
    if sys.stdout.isatty():
        print(f"\r\x1b[2K{text}", end=end, flush=True)
    elif end:
        print(text, flush=True)
