"""A measurement in a process of its own, and its result as JSON.

A worker module ends with `if __name__ == "__main__": child.serve(measure)`, where measure takes the
job (a dict) and returns JSON. What it prints with `progress` moves the parent's bar; all else that
the engine says goes to a log. Several workers at the same time measure in turns: one at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from scripts.common import ROOT, WORK, Failure, main
from scripts.harness import engine

LOGS = WORK / "engines"
LAST_LINES = 15
# What every engine process runs with, beside what the harness sets for interpreted kernels.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def measure(
    module: str,
    job: dict[str, Any],
    label: str,
    console: Console,
    environment: dict[str, str] | None = None,
) -> Any:
    """Run a worker module on a job behind a progress bar. Raises Failure with its log's end."""
    return measure_in_turns(module, {label: job}, console, environment)[label]


def measure_in_turns(
    module: str,
    jobs: dict[str, dict[str, Any]],
    console: Console,
    environment: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Run a worker on each job, all at the same time, and give each one's answer by its label.

    Several workers take turns: each goes on at `turn` when the one before has come to its next
    one. Raises Failure with the log's end of the first that fails; none of them outlives this.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total}"),
        TimeElapsedColumn(),
    )
    workers: list[_Worker] = []
    with (
        tempfile.TemporaryDirectory(dir=LOGS) as folder,
        Progress(*columns, console=console) as bars,
    ):
        try:
            for label, job in jobs.items():
                worker = _Worker(label, f"{module.rpartition('.')[2]}-{label}", Path(folder), bars)
                # A lone worker's `turn` finds the end of its input, and waits for nobody.
                stdin = subprocess.PIPE if len(jobs) > 1 else subprocess.DEVNULL
                worker.start(module, job, stdin, environment or {})
                workers.append(worker)
            if len(workers) > 1:
                _take_turns(workers)
            for worker in workers:
                while worker.follow():
                    pass
        finally:
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.process.wait()
        return {worker.label: json.loads(worker.answer.read_text()) for worker in workers}


def _take_turns(workers: list[_Worker]) -> None:
    """Let each worker have a turn after the other, until all have ended."""
    for worker in workers:
        worker.follow()
    left = deque(workers)
    while left:
        for worker in left:
            worker.turn()
        left = deque(worker for worker in left if worker.process.returncode is None)
        # No worker is always the first one after a pause, or always behind the same one.
        left.rotate(-1)


class _Worker:
    """A worker's process, its bar, its log, and where its answer will be."""

    process: subprocess.Popen[str]

    def __init__(self, label: str, name: str, folder: Path, bars: Progress) -> None:
        name = name.replace("/", "_")
        self.label = label
        self.log = LOGS / f"{name}.log"
        self.asked, self.answer = folder / f"{name}.job.json", folder / f"{name}.answer.json"
        self._bars, self._bar = bars, bars.add_task(f"{label}: starting", total=None)
        self._left = 1

    def start(
        self, module: str, job: dict[str, Any], stdin: int, environment: dict[str, str]
    ) -> None:
        self.asked.write_text(json.dumps(job))
        with self.log.open("w") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(self.asked), str(self.answer)],
                cwd=ROOT,
                env=os.environ | ENVIRONMENT | environment,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )

    def follow(self) -> bool:
        """Move the bar by the next `progress` line. False if none comes: the worker has ended.

        Raises Failure with its log's end if it has ended without an answer.
        """
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                done, total = (int(word) for word in line.split())
                self._left = total - done
                self._bars.update(self._bar, completed=done, total=total, description=self.label)
                return True
        if self.process.wait() or not self.answer.exists():
            lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            where = self.log.relative_to(ROOT) if self.log.is_relative_to(ROOT) else self.log
            raise Failure(f"{self.label} failed (all of it: {where}):\n" + "\n".join(lines))
        return False

    def turn(self) -> None:
        """Let it go on to its next turn or, after its last one, to its end.

        What a worker does at its end would slow the next one's turn.
        """
        assert self.process.stdin is not None
        # Of one that has ended meanwhile `follow` tells.
        with contextlib.suppress(BrokenPipeError):
            os.write(self.process.stdin.fileno(), b"\n")
        while self.follow() and not self._left:
            pass


def progress(done: int, total: int) -> None:
    """Tell the parent how far a worker is."""
    print(done, total, file=sys.__stdout__, flush=True)


def turn() -> None:
    """Wait for the parent's word: it is this worker's turn. A lone worker goes on at once.

    A worker that takes turns tells its `progress` before each, and once more after the last.
    """
    sys.stdin.readline()


def serve(function: Callable[[dict[str, Any]], Any]) -> None:
    """A worker's main: read the job, answer it by the tree in vllm/ alone."""
    # The engine's own prints must not mix with the parent's counts.
    sys.stdout = sys.stderr

    def run() -> None:
        engine.put_first()
        answer = function(json.loads(Path(sys.argv[1]).read_text()))
        engine.require_one()
        Path(sys.argv[2]).write_text(json.dumps(answer))
        # The engine's own end takes seconds, and leaves nothing that anybody reads.
        sys.stderr.flush()
        os._exit(0)

    main(run)
