"""Decode and verify over a paged compressed cache: the series, the stock kernel, a dense fallback.

The fallback gathers the context by its block table, dequantises it and runs torch's attention
over it. All three read the same tokens; none is timed before its output agrees with float64.
INT4-KIVI has no stock kernel: in its place is what its backend falls back to, gather and attend.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from scripts.attention import bench
from scripts.attention.shapes import Batch, Geometry, format_named, formats
from scripts.common import Failure, main
from scripts.harness import options, show
from scripts.harness.run import Run

NAME = "bench_paged_decode"
DENSE = "dense"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = options.parser(NAME, __doc__, shapes=True)
    known = [name for name, form in formats().items() if form.same_as]
    parser.add_argument("--format", default="int8", choices=known, help="the series' cache format")
    return parser.parse_args()


def measure(run: Run, shape: Geometry, one: Batch, variant: str, copy: float) -> dict[str, Any]:
    """Errors and times of a variant: a format, or the dense fallback over one ("int8-dense")."""
    from scripts.attention import dense
    from scripts.attention.gate import check_rows

    base = variant.removesuffix(f"-{DENSE}")
    form = format_named(base)
    if variant != base and form.cache not in dense.DEQUANTISERS:
        return {"unavailable": f"nothing here dequantises {form.cache}"}
    step, errors = bench.step_of(shape, one, form, run)
    call = step.attend
    if variant != base:
        errors = check_rows(step, dense.checked(step), f"dense fallback, {form.title}")
        call = partial(dense.attend, step)
    times = bench.timed(run, call, step.layers, step.cache_bytes, copy, form.graphs)
    return {"errors": errors, "read": times}


def run() -> None:
    parsed = arguments()
    form = format_named(parsed.format)
    shapes = bench.shapes(parsed, ("decode", "verify"))
    assert form.same_as
    variants = (form.name, form.same_as, f"{form.name}-{DENSE}")
    settings = {"shapes": [[shape.name, one.spec] for shape, one in shapes], "format": form.name}
    with Run(NAME, parsed, settings=settings, label=form.name) as running:
        for shape in dict.fromkeys(shape for shape, _ in shapes):
            if reason := bench.unavailable(form, shape, running):
                raise Failure(f"{form.title}, {shape.name}: {reason}\nchoose another --format")
        timed = partial(measure, running, copy=bench.copy_bytes_per_s(running))
        bench.measure_fitting(running, shapes, variants, timed)
        running.write({"reference": form.same_as})
    values = running.cells.values
    title = f"Reading {form.title}, a layer; ratio to {form.same_as}"
    show.table(title, bench.HEADINGS, bench.table_rows(values, "read", form.same_as))


if __name__ == "__main__":
    main(run)
