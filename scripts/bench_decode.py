"""Decode and verify over an INT8 cache, by whichever kernel the tree in vllm/ holds.

`make ab KERNEL=int8_decode BENCH=decode` runs this in a fresh process for the old
tree (the unified kernel) and for the new one (the fused kernel); alone it prints
the times of the tree as it is.
"""

import argparse
import importlib.util
import json
from pathlib import Path
from types import ModuleType

from scripts.common import VLLM, Failure, main


def benchmark() -> ModuleType:
    """The benchmark that travels in the patch; it stays in the tree in both states."""
    path = VLLM / "benchmarks" / "kernels" / "benchmark_quant_kv_attention.py"
    if not path.exists():
        raise Failure(f"{path.name} is not in vllm/: run `make apply`")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases_of(module: ModuleType, names: list[str] | None) -> list[str]:
    """The cases to time, all if none is named; refuses unknown ones and a machine without a GPU."""
    import torch

    if not torch.cuda.is_available():
        raise Failure("this times kernels: it needs an NVIDIA GPU")
    unknown = set(names or ()) - set(module.CASES)
    if unknown:
        raise Failure(f"unknown case {min(unknown)}: known are {', '.join(module.CASES)}")
    return names or list(module.CASES)


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the medians to this file")
    parser.add_argument("--cases", nargs="*", help="names of cases; all without it")
    args = parser.parse_args()
    import torch

    module = benchmark()
    fused = importlib.util.find_spec("vllm.v1.attention.ops.quant_kv") is not None
    cases: dict[str, dict[str, float]] = {}
    for name in cases_of(module, args.cases):
        torch.manual_seed(0)
        step = module.Step(module.CASES[name])
        if fused:
            entry = step.fused([""])["table"]
            if "median_us" not in entry:
                raise Failure(f"{name}: error {entry['error']:.1e}, not timed: the kernel is wrong")
            time = float(entry["median_us"])
        else:
            time = step.unified()
        cases[name] = {"median_us": time}
        print(f"{name}: {time:.1f} us", flush=True)
    if args.json:
        kernel = "fused" if fused else "unified"
        args.json.write_text(json.dumps({"kernel": kernel, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main(run)
