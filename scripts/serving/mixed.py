"""A prompt arrives while other requests decode: a worker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from scripts.serving import child
from scripts.serving.engines import Engine, Settings, Step, tokens_per_step
from scripts.serving.prompts import prompt

NEW = "arriving"


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """The steps around each arrival, and what the engine holds; see `merge`.

    job: engine (Settings), vocabulary, running (requests that decode), context (tokens of each
    one's prompt), arriving (tokens of the new prompt), around (steps before the arrival, and after
    its first token), repeats.
    """
    engine = Engine(Settings(**job["engine"]))
    repeats = job["repeats"]
    runs = []
    # The first one compiles kernels, so it is told apart.
    for repeat in range(repeats + 1):
        child.progress(repeat, repeats + 1)
        child.turn()
        runs.append(arrival(engine, job, repeat))
    child.progress(repeats + 1, repeats + 1)
    return {"runs": runs[1:], "cold": cold(runs[0]), "capacity": engine.capacity()}


def merge(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """One cell of what the processes of a format measured.

    Told are all arrivals together, and of each process the median of its steps: how much that
    differs is what the host's speed does to a step which waits for it.
    """
    medians_of = [summary(answer["runs"])["step_ms_p50"] for answer in answers]
    longest = {key: max(answer["cold"][key] for answer in answers) for key in answers[0]["cold"]}
    return (
        summary([run for answer in answers for run in answer["runs"]])
        | {"step_ms_p50_of_processes": medians_of, "cold": longest}
        | answers[0]["capacity"]
    )


def arrival(engine: Engine, job: dict[str, Any], seed: int) -> dict[str, Any]:
    """One arrival: milliseconds of each step, which of them it came before, tokens, first tokens.

    first_token_s tells of the running requests when the first one has a token, and when all have;
    longest of the longest step while the prompt is taken in: which of those it is, and what held
    it up, as Step has it.
    """
    around, repeating = job["around"], bool(engine.settings.drafts)

    def add(name: str, length: int, number: int) -> None:
        made = prompt(length, job["vocabulary"], seed * 100 + number, repeating=repeating)
        engine.add(name, made, 1 << 20)

    running = [f"running {i}" for i in range(job["running"])]
    for i, name in enumerate(running):
        add(name, job["context"], i)
    prefill = engine.until(*running)
    first = next(i for i, step in enumerate(prefill, 1) if step.tokens)
    alone = [engine.step() for _ in range(around)]
    add(NEW, job["arriving"], 99)
    during = engine.until(NEW)
    after = [engine.step() for _ in range(around)]
    engine.drop(NEW, *running)
    slowest = max(during, key=lambda step: step.seconds)
    return {
        "prefill_ms": milliseconds(prefill),
        "step_ms": milliseconds([*alone, *during, *after]),
        "arrival": len(alone),
        "first": len(alone) + len(during),
        "longest": {
            "ms": slowest.seconds * 1e3,
            "gc_ms": slowest.gc_ms,
            "switches": slowest.switches,
            "step": during.index(slowest),
        },
        "tokens_per_step": {
            "alone": tokens_per_step(alone, running),
            "during": tokens_per_step(during, running),
        },
        "first_token_s": {
            "first running": sum(step.seconds for step in prefill[:first]),
            "running": sum(step.seconds for step in prefill),
            NEW: sum(step.seconds for step in during),
        },
    }


def milliseconds(steps: Iterable[Step]) -> list[float]:
    return [step.seconds * 1e3 for step in steps]


def cold(run: dict[str, Any]) -> dict[str, float]:
    """The longest step of the first arrival: while its prompt was taken in, and of all."""
    return {
        "step_ms_max": max(run["step_ms"][run["arrival"] : run["first"]]),
        "longest_ms": max(run["prefill_ms"] + run["step_ms"]),
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """p50 and p99 between two answers to a running request, while the prompt is taken in and not.

    An answer is a token, or several where drafts are verified: `tokens_per_step`. `step_ms` and
    `arrival` are those of the run whose new request waited for the median time. `during_ms` has the
    steps of each run while its prompt is taken in, `longest` the longest of all of them: by its
    arrival and step it is found there. `longest_ms_p50` is the median over the runs of each one's
    longest step: a hiccup of the host in one run is in `step_ms_max` alone.
    """
    waits = [run["first_token_s"][NEW] for run in runs]
    shown = runs[int(np.argsort(waits)[len(waits) // 2])]
    during_of = [run["step_ms"][run["arrival"] : run["first"]] for run in runs]
    during = [ms for steps in during_of for ms in steps]
    longest = [run["longest"] | {"arrival": number} for number, run in enumerate(runs)]
    alone = [ms for run in runs for ms in run["step_ms"][: run["arrival"]]]
    return {
        "step_ms": shown["step_ms"],
        "arrival": shown["arrival"],
        "step_ms_p50": float(np.quantile(during, 0.5)),
        "step_ms_p99": float(np.quantile(during, 0.99)),
        "step_ms_max": max(during),
        "longest_ms_p50": float(np.median([max(steps) for steps in during_of])),
        "longest": max(longest, key=lambda one: one["ms"]),
        "during_ms": [[round(ms, 3) for ms in steps] for steps in during_of],
        "alone_ms_p50": float(np.quantile(alone, 0.5)),
        "alone_ms_p99": float(np.quantile(alone, 0.99)),
        "tokens_per_step": medians(runs, "tokens_per_step"),
        "first_token_s": medians(runs, "first_token_s"),
        "repeats": len(runs),
    }


def medians(runs: list[dict[str, Any]], key: str) -> dict[str, float]:
    """The median over the runs of each figure under a key."""
    return {name: float(np.median([run[key][name] for run in runs])) for name in runs[0][key]}


if __name__ == "__main__":
    child.serve(measure)
