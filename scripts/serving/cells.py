"""One cell a cache format, each by an engine in a process of its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scripts.common import Failure
from scripts.harness.run import Run
from scripts.plan.memory import memory_bytes
from scripts.serving import child, figures, formats, models
from scripts.serving.engines import Settings
from scripts.serving.models import Model

CACHES = ("auto", "int8_per_token_head", "int4_per_token_head", "int4_kivi")


def add_flags(parser: argparse.ArgumentParser, context: int | None = None) -> None:
    """The flags of engines.

    context: the default length of a made-up prompt; None: the script has prompts of its own, and
    neither their length nor drafts nor turns are asked for.
    """
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
            "--drafts",
            type=_drafts,
            default=0,
            metavar="N",
            help="verify N tokens a step that n-grams of the prompt propose; the prompts repeat "
            "themselves then (default 0: no speculation)",
        )
        parser.add_argument(
            "--alternate",
            action="store_true",
            help="the engines of all formats live at the same time and take turns, one repeat each "
            "(default: one engine after the other); --memory must be in bytes then",
        )
    else:
        parser.set_defaults(drafts=0, alternate=False)
    parser.add_argument(
        "--chunk", type=int, default=2048, help="most tokens of a step (default 2,048)"
    )
    parser.add_argument(
        "--eager", action="store_true", help="no CUDA graphs (default: full ones of decode steps)"
    )
    parser.add_argument(
        "--memory",
        type=memory,
        default=0.5,
        help="the cache's memory, such as 9GiB, or the share of the GPU's that the whole engine "
        "takes (default 0.5)",
    )


def memory(text: str) -> float:
    """A share of the GPU's memory (float, at most 1) or bytes of the cache (int)."""
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    return share if 0 < share <= 1 else memory_bytes(text)


def _drafts(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("give a number of 0 or more")
    return number


def drafted(parsed: argparse.Namespace) -> str:
    """What a table's title says of drafts and graphs."""
    return (f", drafts of {parsed.drafts}" if parsed.drafts else "") + (
        ", no CUDA graphs" if parsed.eager else ""
    )


def settings(
    run: Run, parsed: argparse.Namespace, model: Model, cache: str, *, context: int, requests: int
) -> Settings:
    """An engine for requests of `context` tokens in all.

    Raises Failure if the model takes less, if vllm/ doesn't know the cache format, or if engines
    that live at the same time would each take a share of the GPU's memory.
    """
    formats.require(cache)
    # An interpreted engine takes a fixed number of bytes, whatever the flag says.
    if parsed.alternate and run.gpus and isinstance(parsed.memory, float):
        raise Failure(
            f"--alternate keeps an engine of each format on the GPU, and a share ({parsed.memory}) "
            "is what one engine takes: give the bytes of one cache, such as --memory 9GiB"
        )
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
        graphs=[] if parsed.eager else [*sizes, requests],
        memory=parsed.memory,
        drafts=parsed.drafts,
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
    compared: Sequence[figures.Figure],
    processes: int = 1,
    merge: Callable[[list[Any]], Any] = lambda answers: answers[0],
) -> tuple[dict[str, Any], Path]:
    """Every cache format's cell and the result's path.

    A cell is what `merge` makes of the answers of `processes` workers, which measure the formats
    in turn: what differs between processes, or drifts with time, is shared by all formats so. With
    --alternate the workers of one round live at the same time and take turns repeat by repeat: what
    slows the host for seconds is shared too.

    measured: what the worker measures, in its job and in the result's settings; context: tokens
    of a request in all, `requests` of them at a time; compared: what the result's summary gives as
    ratios to the first format.
    """
    shared = ("chunk", "memory", "drafts", "eager", "alternate")
    about = measured | {"model": model.name, "processes": processes}
    about |= {key: getattr(parsed, key) for key in shared}
    label = f"{model.name.lower()}-{label}" + (f"-drafts{parsed.drafts}" if parsed.drafts else "")
    label += "-eager" if parsed.eager else ""
    files = models.files(parsed.model, model)
    with Run(name, parsed, settings=about, files=files, label=label) as this:
        # All of them at once: what one refuses is told before another is measured.
        engines = {
            cache: settings(this, parsed, model, cache, context=context, requests=requests)
            for cache in parsed.caches
        }

        def job(cache: str) -> dict[str, Any]:
            return measured | {"engine": engines[cache].dump(), "vocabulary": model.vocabulary}

        def alone(cache: str) -> Any:
            return child.measure(worker, job(cache), cache, this.console)

        # What a finished run has left under a format's own name is merged.
        kept = this.cells.values
        missing = [cache for cache in parsed.caches if cache not in kept]
        asked = parsed.caches if parsed.alternate and missing else missing
        answers: dict[str, list[Any]] = {cache: [] for cache in asked}
        for number in range(1, processes + 1):
            names = {cache: f"{cache}, process {number}" for cache in answers}
            take: Callable[[str], Any] = alone
            if parsed.alternate and not kept.keys() >= set(names.values()):
                # A cell of another round was not measured beside these.
                for name in names.values():
                    kept.pop(name, None)
                jobs = {cache: job(cache) for cache in names}
                take = child.measure_in_turns(worker, jobs, this.console).__getitem__
            for cache, name in names.items():
                answers[cache].append(this.cell(name, partial(take, cache)))
        found = {
            cache: merge(answers[cache]) if cache in answers else kept[cache]
            for cache in parsed.caches
        }
        return found, this.write(figures.summary(found, compared), found)
