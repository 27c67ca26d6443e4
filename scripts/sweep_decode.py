"""Launch parameters of the fused decode and verify kernels, measured.

For every case the kernel runs with each candidate of tile, warps, segments and
stages, beside FlashAttention in the same run. The best of each goes into the
table of vllm/v1/attention/ops/quant_kv/launch.py by hand: it is printed in the
table's own form. A run goes on where an interrupted one stopped.
"""

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from scripts.bench_decode import benchmark, cases_of
from scripts.common import ROOT, main

# Tile, warps, programs per multiprocessor, stages.
DECODE = list(product((16, 32), (1, 2, 4, 8), (1, 2, 3, 4, 6, 8, 12, 16), (1,)))
VERIFY = list(product((32, 64, 128), (4, 8), (1, 2, 3, 4), (1,)))
WARPS_ON_A_MULTIPROCESSOR = (4, 24)  # fewer leave it idle, more do not fit


def candidates(query_len: int) -> list[str]:
    """Launches worth trying, as the benchmark takes them."""
    low, high = WARPS_ON_A_MULTIPROCESSOR
    grid = DECODE if query_len == 1 else VERIFY
    return [",".join(map(str, entry)) for entry in grid if low <= entry[1] * entry[2] <= high]


def best(entry: dict[str, Any]) -> tuple[str, float]:
    """The fastest launch of a case and its ratio to FlashAttention BF16."""
    timed = {k: v["median_us"] for k, v in entry["fused"].items() if "median_us" in v}
    launch = min(timed, key=lambda k: timed[k])
    return launch, timed[launch] / entry["fa3_bf16_us"]


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", help="names of cases; all without it")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there")
    args = parser.parse_args()
    import torch

    module = benchmark()
    names = cases_of(module, args.cases)
    device = torch.cuda.get_device_name()
    folder = device.lower().replace("nvidia ", "").replace(" ", "-")
    target: Path = ROOT / "results" / folder / "sweep-decode.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    done: dict[str, Any] = {}
    if target.exists() and not args.fresh:
        done = json.loads(target.read_text())["cases"]
    console = Console()
    todo = [name for name in names if name not in done]
    for name in track(todo, description="cases", console=console):
        torch.manual_seed(0)
        step = module.Step(module.CASES[name])
        done[name] = {
            "fa3_bf16_us": step.flash_attention(fp8=False),
            "fused": step.fused(["", *candidates(module.CASES[name].query_len)]),
        }
        report = {"device": device, "torch": torch.__version__, "cases": done}
        target.write_text(json.dumps(report, indent=1) + "\n")
    for name, entry in done.items():
        case = module.CASES[name]
        launch, ratio = best(entry)
        rows = case.query_len * case.num_heads // case.num_kv_heads
        console.print(f"{name}: head size {case.head_size}, {rows} rows: ({launch}) {ratio:.3f}x")


if __name__ == "__main__":
    main(run)
