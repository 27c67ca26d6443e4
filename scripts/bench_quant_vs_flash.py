"""Every cache format beside FlashAttention over BF16 (and over FP8, where the card has it).

Decode, verify and prefill: the attention of a layer (read) and the store of its new tokens, each
with the bandwidth it reaches, as a fraction of the copy bandwidth measured in the same run. Nothing
is timed before its output agrees with attention in float64 over what was stored.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from scripts.attention import bench
from scripts.attention.shapes import Batch, Geometry, format_named, formats
from scripts.common import main
from scripts.harness import options, show
from scripts.harness.run import Run

NAME = "bench_quant_vs_flash"
REFERENCE = "fa-bf16"
KINDS = ("decode", "verify", "prefill", "mixed")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = options.parser(NAME, __doc__, shapes=True)
    parser.add_argument("--format", nargs="+", choices=list(formats()), help="all without it")
    parser.add_argument(
        "--kind", nargs="+", choices=KINDS, default=list(KINDS), help="of the default batches"
    )
    return parser.parse_args()


def measure(run: Run, shape: Geometry, one: Batch, name: str, copy: float) -> dict[str, Any]:
    """Errors of a format, then the times of reading and of storing."""
    form = format_named(name)
    if reason := bench.unavailable(form, shape, run):
        return {"unavailable": reason}
    step, errors = bench.step_of(shape, one, form, run)
    new = int(sum(one.query_lens) * step.bytes_per_token)
    return {
        "errors": errors,
        "bytes_per_token": step.bytes_per_token,
        "flash_version": step.flash_version,
        "read": bench.timed(run, step.attend, step.layers, step.cache_bytes, copy),
        "store": bench.timed(run, step.store, step.layers, new, copy),
    }


def run() -> None:
    parsed = arguments()
    kinds = tuple(kind for kind in parsed.kind if kind != "mixed" or parsed.batch)
    shapes = bench.shapes(parsed, kinds)
    names = parsed.format or list(formats())
    settings = {"shapes": [[shape.name, one.spec] for shape, one in shapes], "formats": names}
    with Run(NAME, parsed, settings=settings) as running:
        timed = partial(measure, running, copy=bench.copy_bytes_per_s(running))
        bench.measure_fitting(running, shapes, names, timed)
        running.write({"reference": REFERENCE})
    values = running.cells.values
    for part in ("read", "store"):
        title = f"{part}, a layer; ratio to {format_named(REFERENCE).title}"
        show.table(title, bench.HEADINGS, bench.table_rows(values, part, REFERENCE))


if __name__ == "__main__":
    main(run)
