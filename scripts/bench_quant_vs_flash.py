"""Every cache format beside FlashAttention over BF16 (and over FP8, where the card has it).

Decode, verify and prefill: the attention of a layer (read) and the store of its new tokens, each
with the bandwidth it reaches, as a fraction of the copy bandwidth measured in the same run. Nothing
is timed before its output agrees with attention in float64 over what was stored. Of a format that
prepares the stores of all layers once a step, that is told apart (once).

--kind store times stores alone, of 1, 32 and 2,048 tokens. Stores touch little: layer after layer
their lines stay in the L2 cache, so that each is told again with the cache flushed before all
layers (store_cold).
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
KINDS = ("decode", "verify", "prefill", "store", "mixed")
PARTS = {
    "read": "reading, a layer",
    "store": "storing, a layer",
    "store_cold": "storing, a layer, after the L2 cache was flushed",
    "once": "before the layers' stores, once a step",
}
FLUSHED_BYTES = 1 << 28


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = options.parser(NAME, __doc__, shapes=True)
    parser.add_argument("--format", nargs="+", choices=list(formats()), help="all without it")
    parser.add_argument(
        "--kind", nargs="+", choices=KINDS, default=list(KINDS), help="of the default batches"
    )
    return parser.parse_args()


def measure(
    run: Run, shape: Geometry, one: Batch, name: str, copy: float, read: frozenset[str]
) -> dict[str, Any]:
    """Errors of a format, then the times of storing and, of the batches of `read`, of reading."""
    form = format_named(name)
    if reason := bench.unavailable(form, shape, run):
        return {"unavailable": reason}
    step, errors = bench.step_of(shape, one, form, run)
    new = int(sum(one.query_lens) * step.bytes_per_token)
    found = {
        "errors": errors,
        "bytes_per_token": step.bytes_per_token,
        "flash_version": step.flash_version,
        "store": bench.timed(run, step.store, step.layers, new, copy),
    }
    if one.spec in read:
        sizes = step.layers, step.cache_bytes, copy
        found["read"] = bench.timed(run, step.attend, *sizes, form.graphs)
    if run.gpus:
        found["store_cold"] = cold(run, step)
    if once := step.once():
        found["once"] = bench.spread(run, once, 1)
    return found


def cold(run: Run, step: Any) -> dict[str, float]:
    """A layer's store after the L2 cache was flushed: the difference to flushing alone."""
    import torch

    memory = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")

    def both() -> None:
        memory.zero_()
        step.store()

    alone = bench.spread(run, memory.zero_, step.layers)
    return {key: one - alone["p50"] for key, one in bench.spread(run, both, step.layers).items()}


def run() -> None:
    parsed = arguments()
    kinds = tuple(kind for kind in parsed.kind if kind != "mixed" or parsed.batch)
    shapes = bench.shapes(parsed, kinds)
    names = parsed.format or list(formats())
    settings = {"shapes": [[shape.name, one.spec] for shape, one in shapes], "formats": names}
    # A batch of the stores alone is read only if another kind has it, too.
    others = tuple(kind for kind in kinds if kind != "store")
    read = frozenset(one.spec for _, one in (bench.shapes(parsed, others) if others else ()))
    label = "result" if parsed.kind == list(KINDS) else "-".join(parsed.kind)
    settings |= {"read": sorted(read)}
    with Run(NAME, parsed, settings=settings, label=label) as running:
        timed = partial(measure, running, copy=bench.copy_bytes_per_s(running), read=read)
        bench.measure_fitting(running, shapes, names, timed)
        running.write({"reference": REFERENCE})
    values = running.cells.values
    for part, title in PARTS.items():
        rows = [row for row in bench.table_rows(values, part, REFERENCE) if row[2] != "-"]
        if rows:
            title = f"{title}; ratio to {format_named(REFERENCE).title}"
            show.table(title, bench.HEADINGS, rows)


if __name__ == "__main__":
    main(run)
