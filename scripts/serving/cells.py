"""One cell a cache format, each by an engine in a process of its own."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from scripts.common import Failure
from scripts.harness.run import Run
from scripts.serving import child
from scripts.serving.engines import Settings
from scripts.serving.models import Model

CACHES = ("auto", "int8_per_token_head", "int4_per_token_head", "int4_kivi")


def add_flags(parser: argparse.ArgumentParser, context: int | None = None) -> None:
    """The flags of engines; `context`: the default length of a prompt, None: no such flag."""
    parser.add_argument(
        "--caches",
        nargs="+",
        default=list(CACHES),
        metavar="DTYPE",
        help=f"kv_cache_dtype of each engine (default: {' '.join(CACHES)})",
    )
    if context:
        parser.add_argument(
            "--context", type=int, default=context, help=f"tokens of a prompt (default {context:,})"
        )
    parser.add_argument(
        "--chunk", type=int, default=2048, help="most tokens of a step (default 2,048)"
    )
    parser.add_argument(
        "--memory", type=float, default=0.5, help="share of the GPU's memory (default 0.5)"
    )


def settings(
    run: Run, parsed: argparse.Namespace, model: Model, cache: str, *, context: int, requests: int
) -> Settings:
    """An engine for requests of `context` tokens in all. Raises Failure if the model can't."""
    if context > model.limit:
        raise Failure(
            f"{model.name} takes {model.limit:,} tokens at most, not {context:,}: give a shorter "
            "prompt, or another --model"
        )
    sizes = [size for size in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256) if size < requests]
    return Settings(
        model=model.path,
        cache=cache,
        dtype=model.dtype,
        weights=model.weights,
        context=context,
        requests=requests,
        chunk=parsed.chunk,
        interpreted=not run.gpus,
        graphs=[*sizes, requests],
        memory=parsed.memory,
    )


def run(
    name: str,
    parsed: argparse.Namespace,
    model: Model,
    measured: dict[str, Any],
    *,
    label: str,
    worker: str,
    context: int,
    requests: int,
) -> tuple[dict[str, Any], Path]:
    """Every cache format's cell, what `worker` answers, and the result's path.

    measured: what the worker measures, in its job and in the result's settings; context: tokens
    of a request in all, `requests` of them at a time.
    """
    about = measured | {"model": model.name, "chunk": parsed.chunk, "memory": parsed.memory}
    with Run(name, parsed, settings=about, label=f"{model.name.lower()}-{label}") as this:

        def cell(cache: str) -> Any:
            engine = settings(this, parsed, model, cache, context=context, requests=requests)
            job = measured | {"engine": engine.dump(), "vocabulary": model.vocabulary}
            return child.measure(worker, job, cache, this.console)

        found = {cache: this.cell(cache, partial(cell, cache)) for cache in parsed.caches}
        return found, this.write()
