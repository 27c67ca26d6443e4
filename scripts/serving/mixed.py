"""A prompt arrives while other requests decode: a worker."""

from __future__ import annotations

from typing import Any

import numpy as np

from scripts.harness import stats
from scripts.serving import child
from scripts.serving.decode import prompt
from scripts.serving.engines import Engine, Settings

NEW = "arriving"


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """The steps around one arrival, and spreads over repeats.

    job: engine (Settings), vocabulary, running (requests that decode), context (tokens of each
    one's prompt), arriving (tokens of the new prompt), around (steps before the arrival, and after
    its first token), repeats.
    """
    engine = Engine(Settings(**job["engine"]))
    repeats = job["repeats"]
    runs = []
    # The first one compiles kernels, so it isn't counted.
    for repeat in range(repeats + 1):
        child.progress(repeat, repeats + 1)
        runs.append(arrival(engine, job, repeat))
    child.progress(repeats + 1, repeats + 1)
    return summary(runs[1:]) | engine.capacity()


def arrival(engine: Engine, job: dict[str, Any], seed: int) -> dict[str, Any]:
    """One arrival: milliseconds of each step, which of them it came before, first tokens."""
    around, vocabulary = job["around"], job["vocabulary"]
    running = [f"running {i}" for i in range(job["running"])]
    for i, name in enumerate(running):
        engine.add(name, prompt(job["context"], vocabulary, seed * 100 + i), 1 << 20)
    waiting, first = set(running), 0.0
    while waiting:
        step = engine.step()
        first += step.seconds
        waiting -= step.tokens.keys()
    steps = [engine.step().seconds for _ in range(around)]
    engine.add(NEW, prompt(job["arriving"], vocabulary, seed * 100 + 99), 1 << 20)
    began = len(steps)
    while True:
        step = engine.step()
        steps.append(step.seconds)
        if NEW in step.tokens:
            break
    until = len(steps)
    steps += [engine.step().seconds for _ in range(around)]
    engine.drop(NEW, *running)
    return {
        "step_ms": [seconds * 1e3 for seconds in steps],
        "arrival": began,
        "first": until,
        "first_token_s": {"running": first, NEW: sum(steps[began:until])},
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """p50 and p99 between two tokens of a running request, while the prompt is taken in and not.

    `step_ms` and `arrival` are those of the run whose new request waited for the median time.
    """
    waits = [run["first_token_s"][NEW] for run in runs]
    shown = runs[int(np.argsort(waits)[len(waits) // 2])]
    during = [ms for run in runs for ms in run["step_ms"][run["arrival"] : run["first"]]]
    alone = [ms for run in runs for ms in run["step_ms"][: run["arrival"]]]
    return {
        "step_ms": shown["step_ms"],
        "arrival": shown["arrival"],
        "step_ms_p50": float(np.quantile(during, 0.5)),
        "step_ms_p99": float(np.quantile(during, 0.99)),
        "step_ms_max": max(during),
        "alone_ms_p50": float(np.quantile(alone, 0.5)),
        "alone_ms_p99": float(np.quantile(alone, 0.99)),
        "first_token_s": {
            name: stats.spread([run["first_token_s"][name] for run in runs])["p50"]
            for name in ("running", NEW)
        },
        "repeats": len(runs),
    }


if __name__ == "__main__":
    child.serve(measure)
