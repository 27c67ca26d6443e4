"""A single stream: time to the first token, then of each token: a worker."""

from __future__ import annotations

import random
import statistics
from typing import Any

from scripts.harness import stats
from scripts.serving import child
from scripts.serving.engines import Engine, Settings

# Steps after the first token that aren't counted: clocks and allocator settle.
SETTLE = 4


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Spreads over repeats: the median step of each, and its time to the first token.

    job: engine (Settings), vocabulary, context (tokens of the prompt), tokens (to decode),
    repeats.
    """
    engine = Engine(Settings(**job["engine"]))
    medians, first = [], []
    repeats = job["repeats"]
    # The first one compiles kernels, so it isn't counted.
    for repeat in range(repeats + 1):
        child.progress(repeat, repeats + 1)
        seconds, to_first = stream(engine, job, repeat)
        medians.append(statistics.median(seconds) * 1e3)
        first.append(to_first)
    child.progress(repeats + 1, repeats + 1)
    return {
        "ms_per_token": stats.spread(medians[1:]),
        "ms_per_token_interval": list(stats.median_interval(medians[1:])),
        "first_token_s": stats.spread(first[1:]),
    } | engine.capacity()


def stream(engine: Engine, job: dict[str, Any], seed: int) -> tuple[list[float], float]:
    """Decode one request: seconds of each counted token, and seconds to the first one."""
    engine.add("one", prompt(job["context"], job["vocabulary"], seed), SETTLE + job["tokens"] + 1)
    steps: list[float] = []
    to_first = 0.0
    for step in engine.steps():
        if not steps and "one" not in step.tokens:
            to_first += step.seconds
            continue
        steps.append(step.seconds)
    return steps[1 + SETTLE :], to_first + steps[0]


def prompt(length: int, vocabulary: int, seed: int) -> list[int]:
    """Random tokens, none of the special ones at the vocabulary's start."""
    chosen = random.Random(seed)
    return [chosen.randrange(10, vocabulary) for _ in range(length)]


if __name__ == "__main__":
    child.serve(measure)
