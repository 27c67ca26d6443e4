"""A run of a script: refusals first, then cells one by one, then one JSON file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from scripts.common import ROOT, WORK, Failure
from scripts.harness import code, device, engine, environment, gpu, inputs, options, result, tree
from scripts.harness.claim import claimed

RESULTS = ROOT / "results"
SMOKE = WORK / "smoke"


class Run:
    """Measures the cells of one result.

        with Run("bench_x", parsed, settings={"dtype": "int8"}) as run:
            for name in run.track(names):
                run.cell(name, lambda: measure(name))
            run.write({"fastest": ...})

    name: the script's, a folder under results/<gpu>/.
    parsed: the flags of `options.parser`.
    settings: whatever else the cells depend on, as JSON; part of what --resume compares.
    files: what it reads beside the code; see `inputs`.
    label: the result's file name without .json.
    gpus: how many GPUs it measures on; 0: none, it runs on the host alone.
    variants: the old files of a kernel (`make ab-old`) may be in vllm/.
    timed: it measures times, and must be alone on its GPUs; runs that don't may share them.

    Entering raises Failure for each condition that would spoil the result, with the remedy; with
    no GPU, unless it needs none or runs as --smoke.
    """

    def __init__(
        self,
        name: str,
        parsed: argparse.Namespace,
        *,
        settings: dict[str, Any],
        files: Sequence[inputs.Input] = (),
        label: str = "result",
        gpus: int = 1,
        variants: bool = False,
        timed: bool = True,
    ) -> None:
        self.name, self.label, self.smoke = name, label, parsed.smoke
        self.settings = settings | {"smoke": parsed.smoke, "repeats": parsed.repeats}
        self.console = Console(stderr=True)
        self._parsed, self._variants, self._files = parsed, variants, files
        self._timed = timed
        # First of all: it sets variables that torch reads when it is imported.
        self.gpus = device.choose(parsed.smoke, gpus) if gpus else []
        self._held = ExitStack()
        self._load: list[dict[str, Any]] = []

    def __enter__(self) -> Run:
        parsed = self._parsed
        engine.put_first()
        self.series, reasons = tree.read(variants=self._variants)
        tree.require_series(reasons, parsed.allow_dirty or parsed.smoke)
        self.dirty = reasons
        self.inputs = {one.name: one.record(inputs.check(one)) for one in self._files}
        with self._held as held:
            held.enter_context(claimed([one.uuid for one in self.gpus], shared=not self._timed))
            if self._timed:
                gpu.require_idle(self.gpus)
            self._watch = tree.Watch()
            self.record = environment.record(self.gpus)
            about = {
                "name": self.name,
                "settings": self.settings,
                "inputs": self.inputs,
                "series": self.series.digest,
                "variant": self.series.variant,
                "tree": self._watch.checksum,
                "scripts": code.digest(),
                "gpus": [one.uuid for one in self.gpus],
                "versions": self.record["versions"],
                "variables": self.record["settings"],
            }
            self.key = result.key_of(about)
            self.cells = result.Cells(self.name, self.key, self.path, parsed.fresh)
            self._held = held.pop_all()
        if self.cells.values:
            kept = len(self.cells.values)
            self.console.print(f"{kept} cells are measured already (--fresh measures them again)")
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    @property
    def path(self) -> Path:
        """Where the result goes; a smoke run's and a dirty one's stand apart."""
        if self._parsed.out:
            return self._parsed.out
        folder = (SMOKE if self.smoke else RESULTS) / self.place / self.name
        return folder / f"{self.label}{'-dirty' if self.dirty and not self.smoke else ''}.json"

    @property
    def place(self) -> str:
        """The folder of the GPU that measures, "cpu" without one."""
        return self.gpus[0].folder if self.gpus else "cpu"

    def track(self, cells: Iterable[str], what: str | None = None) -> Iterator[str]:
        """The cells one after the other, behind a progress bar."""
        names = list(cells)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task(what or self.name, total=len(names))
            for name in names:
                progress.update(task, description=name)
                yield name
                progress.advance(task)

    def cell(self, name: str, measure: Callable[[], Any]) -> Any:
        """The cell's value as JSON: from an earlier run of this kind, else measured and kept.

        Raises Failure, and keeps nothing, if files in vllm/ were written meanwhile.
        """
        if name in self.cells.values:
            return self.cells.values[name]
        value = measure()
        self._load += [gpu.load(one) for one in self.gpus]
        self._watch.check()
        engine.require_one()
        self.cells.keep(name, value)
        return value

    def origin(self) -> dict[str, Any]:
        """Everything that tells where a result comes from. Raises Failure if that has changed."""
        self._watch.check()
        for one in self._files:
            if inputs.digest(one.path) != self.inputs[one.name]["sha256"]:
                raise Failure(f"the input {one.path} was written while the run went on: run again")
        return {
            "schema": result.SCHEMA,
            "name": self.name,
            "command": options.command(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "key": self.key,
            "smoke": self.smoke,
            "dirty": self.dirty,
            "series": self.series.record(),
            "tree": self._watch.checksum,
            "environment": self.record | {"alone": self._timed, "load": self._loads()},
            "inputs": self.inputs,
            "settings": self.settings,
        }

    def write(
        self, summary: dict[str, Any] | None = None, cells: dict[str, Any] | None = None
    ) -> Path:
        """Write the result with its origin; returns its path.

        cells: what to write of the measured cells, if not them as they are.
        """
        data = {"summary": summary or {}, "cells": cells or self.cells.values}
        result.write(self.path, self.origin() | data)
        self.cells.done()
        where = self.path.resolve()
        inside = where.is_relative_to(ROOT)
        self.console.print(f"written: {where.relative_to(ROOT) if inside else where}")
        return self.path

    def _loads(self) -> dict[str, Any]:
        """The SM clock's range over the cells, and every slowdown that was seen."""
        clocks = [load["sm_clock_mhz"] for load in self._load if load]
        if not clocks:
            return {}
        slow = sorted({word for load in self._load for word in load.get("slowdowns", ())})
        return {"sm_clock_mhz": [min(clocks), max(clocks)], "slowdowns": slow}
