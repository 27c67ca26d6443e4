"""Check that INT4-KIVI's fused attention equals the dense gather-and-attend over the same cache.

Over a matrix of GQA ratios, head sizes, block sizes, masks, query tokens and dtypes: each row of
each head within a relative error, and a context of one token equal bit for bit: all of the weight
is its own, unless a sink takes a share, which is rounded. On the GPU, or without one over
interpreted kernels (slow: --every takes a part). Prints ALL PASS, or ends with 1.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from scripts.common import Failure, main, say
from scripts.harness import device

RATIOS = (1, 2, 3, 4, 6, 7, 8, 12, 16)
HEAD_SIZES = (64, 80, 96, 112, 128, 192, 256)
MASKS: dict[str, dict[str, Any]] = {
    "causal": {},
    "window": {"window": 37},
    "sinks": {"sinks": True},
    "softcap": {"softcap": 5.0},
    "all": {"window": 61, "sinks": True, "softcap": 10.0},
}
# Relative error of a row: both read exact numbers, and round their products apart.
TOLERANCE = {"float32": 2e-5, "float16": 3e-3, "bfloat16": 6e-3}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.validate_paged_decode", description=__doc__
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th case alone")
    return parser.parse_args()


def choices(tests: Any) -> list[dict[str, Any]]:
    """All ratios and head sizes, and with them each pair of the other settings."""
    import torch

    wide = torch.float32 if tests.DEVICE.type == "cpu" else torch.bfloat16
    return tests.cover(
        {"heads": [*((2 * ratio, 2) for ratio in RATIOS), (8, 1)], "head_size": HEAD_SIZES},
        {
            "block_size": (16, 32, 144, 272, 528),
            "mask": tuple(MASKS),
            "query_len": (1, 2, 4, 6),
            "dtype": (torch.float16, wide),
            "kernel": ("table", "portable"),
            "context": (0, 15, 16, 150, 700),
        },
    )


def case_of(tests: Any, choice: dict[str, Any]) -> Any:
    """A batch of one context, the query alone, a padding row and, of one token, one."""
    heads, kv_heads = choice["heads"]
    query_len = choice["query_len"]
    return tests.Case(
        (choice["context"] + query_len, query_len, 0, 1),
        (query_len, query_len, 0, 1),
        heads,
        kv_heads,
        choice["head_size"],
        choice["block_size"],
        dtype=choice["dtype"],
        kv_format="int4_kivi",
        **MASKS[choice["mask"]],
    )


def densely(tests: Any, batch: Any) -> Any:
    """The batch's attention by gathering and attending, into NaN."""
    import torch
    from vllm.v1.attention.ops.quant_kv.kivi_dense import attend_densely
    from vllm.v1.attention.ops.quant_kv.scratch import Scratch, ScratchShape

    case = batch.case
    output = torch.full_like(batch.query, float("nan"))
    new = torch.full_like(batch.query[:, : case.num_kv_heads], float("nan"))
    arguments = {k: v for k, v in batch.arguments.items() if k != "query_start_loc"}
    attend_densely(
        batch.query,
        new,
        new,
        batch.views,
        output,
        query_start=batch.query_start_loc.tolist(),
        max_seq_lens=list(case.seq_lens),
        own_rows=[False] * len(case.seq_lens),
        # Ranges of 256 tokens, so that long contexts take several.
        scratch=Scratch(
            ScratchShape(256, case.num_kv_heads, case.head_size, case.dtype), tests.DEVICE
        ),
        **arguments,
    )
    return output


def deviation(fused: Any, dense: Any) -> float:
    """The largest relative error of a row; infinite where one of them isn't finite."""
    if not (fused.isfinite().all() and dense.isfinite().all()):
        return float("inf")
    distance = (fused.double() - dense.double()).norm(dim=-1)
    size = dense.double().norm(dim=-1).clamp(min=1e-30)
    return float((distance / size).max())


def run() -> None:
    parsed = arguments()
    if parsed.every < 1:
        raise Failure(f"--every {parsed.every}: give a number from 1 on")
    device.choose(smoke=True)
    from scripts.quality.formats import statements

    tests = statements()
    failed = 0
    chosen = choices(tests)[:: parsed.every]
    for choice in chosen:
        batch = tests.make_batch(case_of(tests, choice))
        fused, dense = tests.run(batch, choice["kernel"]), densely(tests, batch)
        error = deviation(fused, dense)
        one_token = bool((fused[-1] == dense[-1]).all())
        dtype = str(choice["dtype"]).removeprefix("torch.")
        shared = bool(MASKS[choice["mask"]].get("sinks"))
        passed = error <= TOLERANCE[dtype] and (one_token or shared)
        failed += not passed
        heads, kv_heads = choice["heads"]
        verdict = "pass" if passed else "FAIL"
        one = "equal" if one_token else "rounded apart" if shared else "UNEQUAL"
        shape = f"{heads:>2}/{kv_heads} D{choice['head_size']:<3} N{choice['block_size']:<3}"
        say(
            f"{verdict}  {shape} {choice['mask']:<8} q{choice['query_len']} "
            f"{choice['context']:>3}+ {dtype:<8} {choice['kernel']:<8} error {error:.1e}, "
            f"one token {one}"
        )
    if failed:
        raise Failure(f"{failed} of {len(chosen)} cases differ")
    print("ALL PASS")
    sys.stdout.flush()


if __name__ == "__main__":
    main(run)
