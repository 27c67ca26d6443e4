"""python -m scripts.measure: every run of runs.toml on this machine.

A run whose result is there, of the same line on the same series and GPU, is left out; one that was
interrupted goes on where it stopped. A run that fails is told at the end and loses no other.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.common import ROOT, Failure, main, say
from scripts.harness import gpu, result, tree
from scripts.harness.run import RESULTS

RUNS = Path(__file__).with_name("runs.toml")
AGAIN = "--fresh"  # what tells a script to measure every cell again


def lines(file: Path = RUNS) -> list[str]:
    """The runs, each as words behind `python -m`."""
    with file.open("rb") as stream:
        return tomllib.load(stream)["runs"]


def commands(commit: str, place: str) -> Iterator[str]:
    """The lines of all results of a series' commit: of a GPU's folder, and of the CPU's."""
    for folder in {RESULTS / place, RESULTS / "cpu"}:
        for path in folder.rglob("*.json"):
            data = result.read(path)
            if isinstance(data, dict) and counts(data, commit):
                words = shlex.split(data["command"])
                yield shlex.join(word for word in words if word != AGAIN)


def counts(data: dict[str, Any], commit: str) -> bool:
    """Whether a result was measured on the committed series as it is now."""
    measured = (data.get("series") or {}).get("commit") == commit
    return measured and "command" in data and not (data.get("dirty") or data.get("smoke"))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m scripts.measure", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="check that every run works")
    parser.add_argument("--again", action="store_true", help="measure what has a result, too")
    parser.add_argument(
        "--runs", type=Path, default=RUNS, help="another list than scripts/measure/runs.toml"
    )
    return parser.parse_args()


def run() -> None:
    """Run what has no result yet. Raises Failure naming what failed."""
    parsed = arguments()
    series, reasons = tree.read()
    # Else every single run would refuse, with the same words.
    tree.require_series(reasons, parsed.smoke)
    gpus = gpu.visible()
    done: set[str] = set()
    if series.commit and not (parsed.again or parsed.smoke):
        done = set(commands(series.commit, gpus[0].folder if gpus else "cpu"))
    flags = ["--smoke"] if parsed.smoke else [AGAIN] if parsed.again else []
    todo = lines(parsed.runs)
    failed = []
    for number, line in enumerate(todo, 1):
        words = shlex.split(line)
        about = f"[{number}/{len(todo)}] {line}"
        if shlex.join(["python", "-m", *words]) in done:
            say(f"{about}: has its result (--again measures it anew)")
            continue
        say(about)
        start = time.monotonic()
        code = subprocess.run([sys.executable, "-m", *words, *flags], cwd=ROOT).returncode
        say(f"[{number}/{len(todo)}] exit {code} after {(time.monotonic() - start) / 60:.1f} min")
        if code == 130:  # Ctrl-C, which the script has answered
            raise KeyboardInterrupt
        if code:
            failed.append(f"  python -m {shlex.join([*words, *flags])} (exit {code})")
    if failed:
        raise Failure(
            f"{len(failed)} of {len(todo)} runs failed, and said why above:\n"
            + "\n".join(failed)
            + "\nrun the same command again when that is mended: the others keep their results"
        )


if __name__ == "__main__":
    main(run)
