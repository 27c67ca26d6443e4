"""Decode and verify over a compressed cache, by whichever kernel the tree in vllm/ holds.

`make ab KERNEL=int8_decode BENCH=decode` runs this in a fresh process for the old tree (the stock
kernel) and for the new one; alone it measures the tree as it is.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from scripts.attention import bench
from scripts.attention.shapes import Batch, Geometry, format_named, formats
from scripts.common import main
from scripts.harness import options, result, show
from scripts.harness.run import Run

NAME = "bench_decode"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = options.parser(NAME, __doc__, shapes=True)
    parser.add_argument("--format", default="int8", choices=list(formats()), help="cache format")
    parser.add_argument(
        "--json", type=Path, help="measure anew and write the medians alone to this file (make ab)"
    )
    return parser.parse_args()


def measure(run: Run, shape: Geometry, one: Batch, name: str, copy: float) -> dict[str, Any]:
    """One cell: the error, then the time of reading."""
    from scripts.attention.gate import check
    from scripts.attention.step import Step, release

    release()
    # Not against the stock kernel: in an old tree it is what runs.
    form = format_named(name)
    step = Step(shape, one, form, bench.device(run))
    errors = check(step, None)
    times = bench.timed(run, step.attend, step.layers, step.cache_bytes, copy, form.graphs)
    return bench.about(shape, one, name) | {"errors": errors, "read": times}


def run() -> None:
    parsed = arguments()
    # What `make ab` asks for is compared with what it asked for before: it must be new.
    parsed.fresh |= parsed.json is not None
    # It names the stack, and the patch in hand is often not exported yet; the file says so.
    parsed.allow_dirty |= parsed.json is not None
    shapes = bench.shapes(parsed, ("decode", "verify"))
    settings = {
        "shapes": [[shape.name, one.spec] for shape, one in shapes],
        "format": parsed.format,
    }
    with Run(NAME, parsed, settings=settings, label=parsed.format, variants=True) as running:
        timed = partial(measure, running, copy=bench.copy_bytes_per_s(running))
        bench.measure_all(running, shapes, [parsed.format], timed)
        if parsed.json:
            result.write(parsed.json, _medians(running))
        else:
            running.write()
    rows = bench.table_rows(running.cells.values, "read", parsed.format)
    show.table(f"{running.series.variant}, a layer", bench.HEADINGS, rows)


def _medians(running: Run) -> dict[str, Any]:
    cells = {name: cell for name, cell in running.cells.values.items() if name != bench.COPY}
    return {
        "cases": {name: {"median_us": cell["read"]["p50"]} for name, cell in cells.items()},
        "series": running.series.record(),
        "environment": running.record,
        "dirty": running.dirty,
    }


if __name__ == "__main__":
    main(run)
