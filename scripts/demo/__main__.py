"""`python -m scripts.demo`: run each cache format in a fresh process and show them side by side."""

import argparse
import json
import os
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from scripts import model
from scripts.common import ROOT, WORK, Failure, main
from scripts.demo import report
from scripts.demo.settings import CACHES, Settings, for_device
from scripts.harness import tree

RESULTS = ROOT / "results" / "demo"


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m scripts.demo", description=__doc__)
    parser.add_argument("--tokens", type=int, help="tokens to generate for each prompt")
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON, not as tables"
    )
    parsed = parser.parse_args(argv)
    if parsed.tokens is not None and not 2 <= parsed.tokens <= 200:
        parser.error("--tokens must be between 2 and 200")
    return parsed


def has_gpu() -> bool:
    """Whether the engine runs natively; DEVICE=cpu, as for `make build`, says no."""
    if os.environ.get("DEVICE") == "cpu":
        return False
    import torch

    return torch.cuda.is_available()


def machine(settings: Settings) -> str:
    """What ran it: the GPU's name, or the processor's."""
    if not settings.interpreted:
        import torch

        return torch.cuda.get_device_name(0)
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} cores of {names[0] if names else 'a CPU'}"


class Run:
    """One cache format's process, followed by a thread that moves its bar."""

    def __init__(self, settings: Settings, cache: str, folder: Path, progress: Progress) -> None:
        self.cache = cache
        self.out = folder / f"{cache}.json"
        self.log = folder / f"{cache}.log"
        self.settings = settings
        self.progress = progress
        self.bar: TaskID = progress.add_task(f"{cache}: starting the engine", total=settings.tokens)

    def start(self, weights: Path) -> None:
        self.out.unlink(missing_ok=True)
        command = [sys.executable, "-m", "scripts.demo.worker", json.dumps(self.settings.dump())]
        command += [self.cache, str(weights), str(self.out)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.progress.update(
                    self.bar, completed=int(line), description=f"{self.cache}: generating"
                )

    def stop(self) -> None:
        """End the process if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def result(self) -> dict[str, Any]:
        """Wait for the figures. Raises Failure with the end of the engine's log."""
        code = self.process.wait()
        self.thread.join()
        if code or not self.out.exists():
            tail = "".join(self.log.read_text(errors="replace").splitlines(keepends=True)[-15:])
            where = self.log.relative_to(ROOT)
            raise Failure(
                f"the engine failed with cache {self.cache} (all of it: {where}):\n{tail}"
            )
        return json.loads(self.out.read_text())


def measure(settings: Settings, weights: Path, console: Console) -> list[dict[str, Any]]:
    """Run every cache format: one after the other on a GPU, side by side when interpreted.

    Interpreted kernels use one core, and their times aren't compared.
    """
    folder = WORK / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total}"),
    )
    started: list[Run] = []
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        runs = [Run(settings, cache, folder, progress) for cache in CACHES]
        try:
            for run in runs:
                run.start(weights)
                started.append(run)
                if not settings.interpreted:
                    run.result()
            return [run.result() for run in runs]
        finally:
            for run in started:
                run.stop()


def run() -> None:
    """Measure, show, and keep the figures in results/demo."""
    parsed = arguments()
    console = Console(stderr=parsed.json)
    weights = model.ensure()
    settings = for_device(has_gpu(), parsed.tokens)
    if settings.interpreted:
        console.print("No GPU: the engine runs on the CPU over interpreted kernels, minutes.")
    series, dirty = tree.read()
    runs = measure(settings, weights, console)
    result = {
        "command": "make demo",
        "machine": machine(settings),
        "series": series.record(),
        "dirty": dirty,
        "versions": {name: version(name) for name in ("vllm", "torch", "triton", "transformers")},
        "model": model.NAME,
        "settings": settings.dump(),
        "summary": report.summarise(runs),
        "runs": runs,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{settings.device}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    if parsed.json:
        print(json.dumps(result, indent=1))
    else:
        report.render(console, result)
        console.print(f"Written to {path.relative_to(ROOT)}.")


if __name__ == "__main__":
    main(run)
