"""Launch parameters of the fused decode and verify kernels, measured.

For every shape the kernel runs with each candidate of tile, warps, segments and stages, beside
FlashAttention in the same run. Where several shapes share an entry of the launch table in
vllm/v1/attention/ops/quant_kv/launch.py, the candidate with the least geometric mean of their times
over FlashAttention's is chosen; the entries are printed in the table's own form, to be put in by
hand. A run goes on where an interrupted one stopped.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product, zip_longest
from statistics import geometric_mean
from typing import Any
from unittest import mock

from scripts.attention import bench
from scripts.attention.shapes import Batch, Geometry, format_named, formats
from scripts.common import Failure, main, say
from scripts.harness import options, show
from scripts.harness.run import Run

NAME = "sweep_decode"
REFERENCE = "fa-bf16"
TABLE = "table"  # the launch that the table in vllm/ has now
KNOBS = ("TILE", "WARPS", "SEGMENTS", "STAGES")

# Tile, warps, programs per multiprocessor, stages.
DECODE = list(product((16, 32), (1, 2, 4, 8), (1, 2, 3, 4, 6, 8, 12, 16), (1,)))
# Hopper's kernel has stages, the others one.
VERIFY = list(product((32, 64, 128), (4, 8), (1, 2, 3, 4), (1, 2, 3, 4)))
WARPS_ON_A_MULTIPROCESSOR = (4, 24)  # fewer leave it idle, more do not fit


def candidates(query_len: int, name: str = "int8") -> list[str]:
    """Launches worth trying, as "tile,warps,segments,stages"."""
    low, high = WARPS_ON_A_MULTIPROCESSOR
    # INT4-KIVI's decode kernel takes any number of query rows.
    grid = DECODE if query_len == 1 or name == "int4_kivi" else VERIFY
    return [",".join(map(str, entry)) for entry in grid if low <= entry[1] * entry[2] <= high]


def variables(launch: str) -> dict[str, str]:
    """The engine's overrides for a launch; none for TABLE."""
    values = [] if launch == TABLE else launch.split(",")
    pairs = zip_longest(KNOBS, values)
    return {f"VLLM_QUANT_KV_{knob}": value for knob, value in pairs if value}


def measure(run: Run, shape: Geometry, one: Batch, name: str) -> dict[str, Any]:
    """One shape: each launch's error and, where that is small enough, its times."""
    form = format_named(name)
    step, errors = bench.step_of(shape, one, form, run)
    reference = None
    if bench.unavailable(format_named(REFERENCE), shape, run) is None:
        flash, _ = bench.step_of(shape, one, format_named(REFERENCE), run)
        reference = bench.spread(run, flash.attend, flash.layers)
        del flash
    launches = [TABLE, *(candidates(max(one.query_lens), name)[: 2 if run.smoke else None])]
    tried = {launch: attempt(run, step, launch) for launch in launches}
    about = bench.about(shape, one, name) | {"errors": errors, "key": table_key(step)}
    return about | {"reference": reference, "launches": tried}


def attempt(run: Run, step: Any, launch: str) -> dict[str, Any]:
    """A launch's times, or why it has none."""
    from triton.runtime.errors import TritonError

    from scripts.attention.gate import check

    with overridden(launch, max(step.batch.query_lens)):
        try:
            step.plan()
            fused = step.metadata.fused_step
            if fused is None:
                raise Failure(f"{step.batch.spec} does not run the fused kernel here")
            times = check(step, None) | bench.spread(run, step.attend, step.layers)
        # The launcher refuses what does not fit together, the compiler what needs too much; a
        # candidate that computes wrongly is not timed either. The table's own must run.
        except (ValueError, TritonError, Failure) as refused:
            if launch == TABLE:
                raise
            return {"refused": str(refused)}
    return {"launch": str(fused.launch), **times}


@contextmanager
def overridden(launch: str, query_len: int) -> Iterator[None]:
    """Let the steps of `query_len` tokens a request take a launch, and all others the table's.

    The planner sizes its workspace for every number of query tokens, and a launch that suits
    decoding may be one that verification refuses.
    """
    from vllm.v1.attention.ops.quant_kv.fused import FusedPlanner

    by_table = FusedPlanner._launch

    def chosen(planner: Any, num_reqs: int, queries: int) -> Any:
        with mock.patch.dict(os.environ, variables(launch) if queries == query_len else {}):
            return by_table(planner, num_reqs, queries)

    with mock.patch.object(FusedPlanner, "_launch", chosen):
        yield


def table_key(step: Any) -> list[Any]:
    """The entry of the launch table that serves a step: family, format, head size, rows, work."""
    from vllm.v1.attention.ops.quant_kv import launch

    capability = 80
    if step.device.on_gpu:
        import torch

        major, minor = torch.cuda.get_device_capability()
        capability = 10 * major + minor
    geometry = step.metadata.fused_step.planner.geometry
    rows = sum(launch.row_sets(max(step.batch.query_lens) * geometry.group))
    if geometry.kv_format == "int4_kivi":
        # More query rows than a program has take several.
        rows = min(rows, launch.DECODE_MAX_ROWS.get(geometry.head_size, rows))
    work = "few" if len(step.batch.seq_lens) <= launch.FEW_REQUESTS else "many"
    return [launch.family(capability), geometry.kv_format, geometry.head_size, rows, work]


def best(cells: list[dict[str, Any]]) -> tuple[str, float] | None:
    """The launch that is best over these shapes, and its geometric mean over the reference.

    A launch counts where every shape has timed it. Without a reference the table's launch is one.
    """
    means = {}
    for launch in cells[0]["launches"]:
        ratios = []
        for cell in cells:
            base = cell["reference"] or cell["launches"][TABLE]
            entry = cell["launches"].get(launch, {})
            if "p50" in entry:
                ratios.append(entry["p50"] / base["p50"])
        if len(ratios) == len(cells):
            means[launch] = geometric_mean(ratios)
    if not means:
        return None
    chosen = min(means, key=lambda launch: means[launch])
    return chosen, means[chosen]


def entries(cells: dict[str, Any]) -> dict[tuple[Any, ...], tuple[str, float]]:
    """The table's entries that the cells bear on, each with its best launch and mean ratio."""
    by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell in cells.values():
        if "key" in cell:
            by_key.setdefault(tuple(cell["key"]), []).append(cell)
    found = {key: best(group) for key, group in by_key.items()}
    return {key: chosen for key, chosen in found.items() if chosen}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = options.parser(NAME, __doc__, shapes=True)
    known = [name for name, form in formats().items() if form.same_as]
    parser.add_argument("--format", default="int8", choices=known, help="the series' cache format")
    return parser.parse_args()


def run() -> None:
    parsed = arguments()
    shapes = bench.shapes(parsed, ("decode", "verify"))
    settings = {
        "shapes": [[shape.name, one.spec] for shape, one in shapes],
        "format": parsed.format,
    }
    with Run(NAME, parsed, settings=settings, label=parsed.format) as running:
        bench.measure_all(running, shapes, [parsed.format], partial(measure, running))
        found = entries(running.cells.values)
        running.write({"entries": [[*key, *chosen] for key, chosen in found.items()]})
    rows = []
    for name, cell in running.cells.values.items():
        launch, _ = best([cell]) or (TABLE, 0)
        times = (cell["launches"][kind].get("p50") for kind in (TABLE, launch))
        rows.append([name, *(f"{time:,.1f}" if time else "refused" for time in times), launch])
    headings = ("step", "table us", "best us", "best launch")
    show.table("A layer, by the launch table and by the best launch", headings, rows)
    say("Entries of vllm/v1/attention/ops/quant_kv/launch.py:")
    for key, (launch, mean) in found.items():
        if launch == TABLE:
            say(f"    {key}: as it is  # {mean:.3f}")
        else:
            *fields, stages = launch.split(",")
            fields += [stages] if stages != "1" else []
            say(f"    {key}: ({', '.join(fields)}),  # {mean:.3f}")


if __name__ == "__main__":
    main(run)
