"""The kernel benchmarks that the patches bring, run as vLLM's developers would run them.

They lie in vllm/benchmarks/kernels/ and know nothing of this repository: here they get what every
result needs, an idle GPU, the committed series and a record of where the figures come from.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.common import VLLM, Failure, main, say
from scripts.harness import options, result
from scripts.harness.run import Run

FOLDER = VLLM / "benchmarks" / "kernels"
# Times of one step beside FlashAttention's, as the results name their ratios.
RATIOS = {
    "fa3_fp8_us": "fa3_fp8",
    "unified_us": "unified_{format}",
    "dense_us": "dense_gather",
}
LAUNCHES = {"table": "fused", "table with 1 query term": "fused_1_query_term"}


@dataclass(frozen=True)
class Benchmark:
    """A file of FOLDER, its flags, those of a smoke run, and what the result calls its cases."""

    file: str
    flags: tuple[str, ...] = ()
    few: tuple[str, ...] = ("--cases", "decode-b1-4k-d128")
    cases: str = "cases"


ATTENTION = "benchmark_quant_kv_attention.py"
BENCHMARKS = {
    "decode-int8": Benchmark(ATTENTION),
    "decode-int4": Benchmark(ATTENTION, ("--format", "int4")),
    "decode-int4_kivi": Benchmark(ATTENTION, ("--format", "int4_kivi")),
    "query-terms-int8": Benchmark(ATTENTION, ("--no-unified", "--query-terms", "2", "1")),
    "prefill": Benchmark(
        "benchmark_quant_kv_prefill.py",
        ("--implementations", "bf16", "scratch"),
        ("--cases", "2k-at-0-d256"),
        "chunks",
    ),
}


def measure(benchmark: Benchmark, smoke: bool) -> dict[str, Any]:
    """What a benchmark writes, its cases with their ratios to FlashAttention over BF16."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.json"
        flags = [*benchmark.flags, *(benchmark.few if smoke else ()), "--json", str(file)]
        command = [sys.executable, str(FOLDER / benchmark.file), *flags]
        code = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(VLLM)}).returncode
        if code or not file.exists():
            raise Failure(f"{benchmark.file} ended with {code}, and said why above")
        found = result.read(file)
    cases = found.pop("cases")
    for case in cases.values():
        if benchmark.cases == "chunks":
            for entry in case.values():
                entry["ratio_to_fa3_bf16"] = _ratio(entry["scratch"], entry)
        else:
            case["ratio_to_fa3_bf16"] = ratios(case, found["format"])
    return found | {benchmark.cases: cases}


def ratios(case: dict[str, Any], form: str) -> dict[str, float]:
    """Each time of a decode or verify step over FlashAttention's, by name."""
    times = {name.format(format=form): case[key] for key, name in RATIOS.items() if key in case}
    told = {name: round(time / case["fa3_bf16_us"], 3) for name, time in times.items()}
    fused = {name: case["fused"].get(key, {}) for key, name in LAUNCHES.items()}
    return told | {name: _ratio(one, case) for name, one in fused.items() if "median_us" in one}


def _ratio(entry: dict[str, Any], case: dict[str, Any]) -> float:
    return round(entry["median_us"] / case["fa3_bf16_us"], 3)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = options.parser("measure.kernels", __doc__)
    parser.add_argument("name", choices=list(BENCHMARKS), help="what is measured")
    return parser.parse_args()


def run() -> None:
    """Run one benchmark; its file stands beside the scripts' folders, under its own name."""
    parsed = arguments()
    benchmark = BENCHMARKS[parsed.name]
    settings = {"file": benchmark.file, "flags": benchmark.flags}
    with Run(parsed.name, parsed, settings=settings, label=parsed.name) as running:
        if not running.gpus:
            say(f"{benchmark.file} interprets nothing: without a GPU there is nothing to check")
            return
        found = running.cell(parsed.name, lambda: measure(benchmark, parsed.smoke))
        folder = running.path.parent
        path = parsed.out or folder.parent / running.path.name
        result.write(path, running.origin() | found)
        running.cells.done()
    say(f"written: {path.name}")


if __name__ == "__main__":
    main(run)
