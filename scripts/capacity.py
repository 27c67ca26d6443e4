"""Tokens and concurrent requests that a cache holds, by cache format, before and after patch 0001.

Every figure is the engine's own: its planner groups the layers and counts the blocks, as the base
has it and as the series has it. Models with a drafter stand beside the same model without one.
Needs no GPU.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from scripts.common import main
from scripts.harness import inputs, options, show
from scripts.harness.run import Run
from scripts.plan import planner
from scripts.plan.__main__ import measure
from scripts.plan.geometry import Geometry, find, named
from scripts.plan.memory import memory_bytes

NAME = "capacity"
BEFORE, AFTER = "before", "after"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = options.parser(NAME, __doc__, model=True)
    for action in parser._actions:
        if action.dest == "model":
            action.help = "a name of `make plan`, the path of a config.json, or all (default)"
    parser.add_argument("--memory", default="12GiB", help="the cache's memory on each GPU")
    parser.add_argument("--context", type=int, help="longest request (default: the model's limit)")
    parser.add_argument("--dtype", nargs="+", default=list(planner.DTYPES), choices=planner.DTYPES)
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel ranks")
    parser.add_argument("--rivals", action="store_true", help="the three open proposals too")
    return parser.parse_args()


def config(model: str | None) -> list[inputs.Input]:
    """The config.json that --model names, as an input; names of `make plan` are the code's own."""
    if model is None or model in ("all", *named()):
        return []
    path = Path(model)
    return [inputs.Input("config.json", path / "config.json" if path.is_dir() else path)]


def without_drafter(geometry: Geometry, known: dict[str, Geometry]) -> str | None:
    """The known model that this one is with a drafter added, None for any other."""
    for name, other in known.items():
        if geometry.name.startswith(f"{name}-") and set(other.types) < set(geometry.types):
            return name
    return None


def cell(geometry: Geometry, dtype: str, memory: int, parsed: argparse.Namespace) -> dict[str, Any]:
    """A model's plans in one format, with the requests of the context's length that fit.

    Where no cache of the format serves the model, why.
    """
    try:
        row = measure(
            geometry, memory, parsed.rivals, context=parsed.context, dtype=dtype, tp=parsed.tp
        )
    except planner.Unserved as refused:
        return {"model": geometry.name, "dtype": dtype, "unavailable": str(refused)}
    for plan in row["plans"].values():
        plan["requests"] = round(plan["engine_tokens"] / row["context"], 3)
    return row


def rows(cells: dict[str, Any]) -> list[list[str]]:
    """The cells as text, a line each."""
    lines = []
    for row in cells.values():
        if "unavailable" in row:
            continue
        plans = [row["plans"][rule] for rule in (BEFORE, AFTER)]
        lines.append(
            [
                row["title"],
                row["dtype"],
                *(f"{plan['tokens']:,}" for plan in plans),
                f"{row['gain_percent']:+.1f} %",
                *(f"{plan['requests']:.2f}" for plan in plans),
            ]
        )
    return lines


def run() -> None:
    parsed = arguments()
    memory = memory_bytes(parsed.memory)
    geometries = find(parsed.model or "all")
    dtypes = parsed.dtype
    if parsed.smoke:
        geometries, dtypes = geometries[:1], dtypes[:1]
    known = {geometry.name: geometry for geometry in geometries}
    settings = {
        "memory": memory,
        "context": parsed.context,
        "tp": parsed.tp,
        "rivals": parsed.rivals,
        "models": list(known),
        "dtypes": dtypes,
    }
    label = parsed.memory if (parsed.model or "all") == "all" else f"{parsed.memory}-custom"
    files = config(parsed.model)
    with Run(NAME, parsed, settings=settings, files=files, label=label, gpus=0) as running:
        cells = {
            f"{geometry.name}/{dtype}": partial(cell, geometry, dtype, memory, parsed)
            for geometry in geometries
            for dtype in dtypes
        }
        for name in running.track(cells):
            running.cell(name, cells[name])
        plain = {name: without_drafter(geometry, known) for name, geometry in known.items()}
        running.write({"without_drafter": plain})
    headings = ("model", "cache", "tokens before", "after", "gain", "requests before", "after")
    show.table(
        f"{parsed.memory} on each of {parsed.tp} GPU(s)", headings, rows(running.cells.values)
    )


if __name__ == "__main__":
    main(run)
