"""The flags that every script understands in the same way."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path


def parser(
    module: str, about: str | None, *, shapes: bool = False, model: bool = False
) -> argparse.ArgumentParser:
    """A parser with the common flags; the script adds its own.

    module: the script's name, "bench_x" for `python -m scripts.bench_x`.
    shapes: it takes --geometry and --batch; model: it takes --model.
    """
    made = argparse.ArgumentParser(prog=f"python -m scripts.{module}", description=about)
    made.add_argument(
        "--smoke",
        action="store_true",
        help="check that it works, in tiny shapes and on a CPU too; writes to .work/, not results/",
    )
    made.add_argument(
        "--allow-dirty",
        action="store_true",
        help="measure although vllm/ or patches/ is not the committed series; the result says so",
    )
    made.add_argument("--repeats", type=positive, help="measurements of each cell")
    made.add_argument("--out", type=Path, help="write the result to this file")
    again = made.add_mutually_exclusive_group()
    again.add_argument(
        "--resume",
        dest="fresh",
        action="store_false",
        help="keep the cells that an earlier run of the same kind has measured (default)",
    )
    again.add_argument("--fresh", action="store_true", help="measure every cell again")
    made.set_defaults(fresh=False)
    if shapes:
        made.add_argument(
            "--geometry",
            nargs="+",
            metavar="NAME",
            help="heads and head sizes by name (scripts/attention/shapes.toml)",
        )
        made.add_argument(
            "--batch",
            nargs="+",
            metavar="SPEC",
            help="batches in the grammar of vLLM's benchmarks/attention_benchmarks: "
            "q1s32k is one decode over 32,768 tokens, 8q6s4k eight verifications of six",
        )
    if model:
        made.add_argument(
            "--model", help="any model id or path that vLLM takes (default: SmolLM2-135M-Instruct)"
        )
    return made


def command() -> str:
    """The command line that repeats this run, as typed at the repository's root."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name.removesuffix(".__main__") if spec else sys.argv[0]
    return shlex.join(["python", *(["-m"] if spec else []), name, *sys.argv[1:]])


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give a number of 1 or more")
    return number
