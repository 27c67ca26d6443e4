"""A measurement in a process of its own, and its result as JSON.

A worker module ends with `if __name__ == "__main__": child.serve(measure)`, where measure takes the
job (a dict) and returns JSON. What it prints with `progress` moves the parent's bar; all else that
the engine says goes to a log.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
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
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{module.rpartition('.')[2]}-{label.replace('/', '_')}.log"
    with tempfile.TemporaryDirectory(dir=LOGS) as folder:
        asked, answer = Path(folder) / "job.json", Path(folder) / "answer.json"
        asked.write_text(json.dumps(job))
        command = [sys.executable, "-m", module, str(asked), str(answer)]
        with log.open("w") as stream:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | ENVIRONMENT | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )
        try:
            _follow(process, label, console)
            code = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if code or not answer.exists():
            lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            where = log.relative_to(ROOT) if log.is_relative_to(ROOT) else log
            raise Failure(f"{label} failed (all of it: {where}):\n" + "\n".join(lines))
        return json.loads(answer.read_text())


def _follow(process: subprocess.Popen[str], label: str, console: Console) -> None:
    """Move the bar as the worker's `progress` lines say."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total}"),
        TimeElapsedColumn(),
    )
    assert process.stdout is not None
    with Progress(*columns, console=console) as bars:
        task = bars.add_task(f"{label}: starting", total=None)
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                done, total = (int(word) for word in line.split())
                bars.update(task, completed=done, total=total, description=label)


def progress(done: int, total: int) -> None:
    """Tell the parent how far a worker is."""
    print(done, total, file=sys.__stdout__, flush=True)


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
