"""Runs scripts one after the other in one process, which imports the engine once.

`python smoke_host.py FOLDER SCRIPT ...`: each as `python -m scripts.SCRIPT --smoke --fresh` with
its result in FOLDER/SCRIPT.json; "SCRIPT:FORMAT" with --format FORMAT, in
FOLDER/SCRIPT-FORMAT.json. At last a cache is spoilt under a step, and what the gate says is
written to FOLDER/gate.txt; what the engine says of formats on a GPU to FOLDER/formats.json, the
grid of its verification to FOLDER/grid.json, errors of the dense fallback to FOLDER/dense.json.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

from scripts.common import Failure


def script(name: str, folder: Path) -> None:
    name, _, form = name.partition(":")
    out = folder / f"{name}{'-' if form else ''}{form}.json"
    sys.argv = [name, "--smoke", "--fresh", "--out", str(out)]
    sys.argv += ["--format", form] if form else []
    try:
        runpy.run_module(f"scripts.{name}", run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise


def gate(folder: Path) -> None:
    from scripts.attention.gate import check
    from scripts.attention.served import Device
    from scripts.attention.shapes import batch, format_named, geometry
    from scripts.attention.step import Step

    step = Step(geometry("tiny"), batch("q1s20"), format_named("int8"), Device("cpu"))
    check(step, None)
    step.caches[0].zero_()
    try:
        check(step, None)
    except Failure as failure:
        (folder / "gate.txt").write_text(str(failure))


def grid(folder: Path) -> None:
    """How many segments verification's kernels are launched for, and how many its launch wants."""
    from scripts.attention.served import Device
    from scripts.attention.shapes import batch, format_named, geometry
    from scripts.attention.step import Step

    step = Step(geometry("tiny"), batch("2q3s33"), format_named("int8"), Device("cpu"))
    fused = step.metadata.fused_step
    wanted = fused.planner._segments(fused.launch) + fused.plan.num_reqs
    found = {"launched": fused.plan.num_segments, "wanted": wanted}
    (folder / "grid.json").write_text(json.dumps(found | {"fixed": fused.planner.fixed_grid}))


def dense_rows(folder: Path) -> None:
    """By dtype and format, the error of the dense fallback's rows to the tree's float64 ones."""
    import torch
    from vllm.v1.attention.ops.quant_kv.layout import planar_views
    from vllm.v1.attention.ops.quant_kv.reference import dequantize

    from scripts.attention import dense
    from scripts.attention.served import Device
    from scripts.attention.shapes import batch, format_named, geometry
    from scripts.attention.step import Step

    found = {}
    for name in ("int8", "int4"):
        step = Step(geometry("tiny"), batch("2q3s33"), format_named(name), Device("cpu"))
        views = planar_views(step.caches[0])
        # Every block but the null block, which nothing is stored in, and no slot behind the last.
        blocks = step.block_table[:, :2].flatten().long()
        pairs = (views.key_cache, views.k_scale), (views.value_cache, views.v_scale)
        exact = [dequantize(codes[blocks], scale[blocks], name) for codes, scale in pairs]
        for dtype in (torch.float32, torch.bfloat16):
            step.query = step.query.to(dtype)
            rows = dense.DEQUANTISERS[step.format.cache](step, step.caches[0], blocks)
            errors = [
                float((row.double() - right).norm() / right.norm())
                for row, right in zip(rows, exact, strict=True)
            ]
            found[f"{name} {str(dtype).removeprefix('torch.')}"] = max(errors)
    (folder / "dense.json").write_text(json.dumps(found))


def availability(folder: Path) -> None:
    """By capability and format, why a GPU would not serve it, as far as no GPU is asked."""
    from unittest import mock

    from vllm.platforms import current_platform
    from vllm.platforms.interface import DeviceCapability

    from scripts.attention.served import Device, why_unavailable
    from scripts.attention.shapes import format_named, geometry

    found = {}
    for major in (6, 9):
        capability = DeviceCapability(major, 0)
        with mock.patch.object(current_platform, "get_device_capability", return_value=capability):
            for name in ("int8", "fa-bf16", "fa-fp8"):
                reason = why_unavailable(format_named(name), geometry("laguna-xs"), Device("cuda"))
                found[f"{major}/{name}"] = reason
    (folder / "formats.json").write_text(json.dumps(found))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for chosen in sys.argv[2:]:
        script(chosen, target)
    gate(target)
    grid(target)
    dense_rows(target)
    availability(target)
