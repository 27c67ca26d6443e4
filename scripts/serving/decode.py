"""A single stream: time to the first token, then of each step: a worker."""

from __future__ import annotations

import statistics
from itertools import chain, islice
from typing import Any

from scripts.harness import stats
from scripts.serving import child
from scripts.serving.engines import Engine, Settings, Step, tokens_per_step
from scripts.serving.prompts import prompt

# Steps after the first token that aren't counted: clocks and allocator settle.
SETTLE = 4
NAME = "one"


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Spreads over repeats: the median step of each, a token's share of it, the first token's time.

    job: engine (Settings), vocabulary, context (tokens of the prompt), tokens (to decode),
    repeats.
    """
    engine = Engine(Settings(**job["engine"]))
    repeats = job["repeats"]
    streams = []
    # The first one compiles kernels, so it is told apart.
    for repeat in range(repeats + 1):
        child.progress(repeat, repeats + 1)
        child.turn()
        streams.append(stream(engine, job, repeat))
    child.progress(repeats + 1, repeats + 1)
    return summary(streams) | engine.capacity()


def stream(engine: Engine, job: dict[str, Any], seed: int) -> dict[str, Any]:
    """Decode one request: steps to the first token, and those that are counted."""
    repeating = bool(engine.settings.drafts)
    made = prompt(job["context"], job["vocabulary"], seed, repeating=repeating)
    engine.add(NAME, made, room(job["tokens"], engine.settings.queries))
    to_first = engine.until(NAME)
    settling = list(islice(engine.steps(), SETTLE))
    counted: list[Step] = []
    got = 0
    while got < job["tokens"]:
        counted.append(engine.step())
        got += len(counted[-1].tokens.get(NAME, ()))
    engine.drop(NAME)
    return {
        "step_ms": statistics.median(step.seconds for step in counted) * 1e3,
        "tokens_per_step": tokens_per_step(counted, {NAME}),
        "first_token_s": sum(step.seconds for step in to_first),
        "longest_ms": max(step.seconds for step in chain(to_first, settling, counted)) * 1e3,
    }


def room(tokens: int, queries: int) -> int:
    """Tokens that a request of `tokens` counted ones may get, `queries` of them a step at most."""
    return tokens + (SETTLE + 2) * queries


def summary(streams: list[dict[str, Any]]) -> dict[str, Any]:
    """Spreads over all streams but the first, whose longest step is told as the cold one's."""
    cold, *warm = streams
    spread = {key: [one[key] for one in warm] for key in ("step_ms", "first_token_s")}
    tokens = [one["step_ms"] / one["tokens_per_step"] for one in warm]
    return {
        "ms_per_token": stats.spread(tokens),
        "ms_per_token_interval": list(stats.median_interval(tokens)),
        "tokens_per_step": statistics.median(one["tokens_per_step"] for one in warm),
        "longest_ms": max(one["longest_ms"] for one in warm),
        "cold": {"longest_ms": cold["longest_ms"]},
    } | {key: stats.spread(values) for key, values in spread.items()}


if __name__ == "__main__":
    child.serve(measure)
