"""Greedy answers to prompts by one engine: a worker."""

from __future__ import annotations

from typing import Any

from scripts.serving import child
from scripts.serving.engines import Engine, Settings
from scripts.serving.models import Model, Text


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """{"answers": [as `answers` gives them], "seconds", "generated", the engine's capacity}.

    job: engine (Settings), model (Model), prompts (token ids), tokens (most of an answer), stops.
    """
    text = Text(Model(**job["model"]))
    engine = Engine(Settings(**job["engine"]))
    found, seconds = answers(engine, text, job["prompts"], job["tokens"], job["stops"])
    generated = sum(len(answer["tokens"]) for answer in found)
    return {"answers": found, "seconds": seconds, "generated": generated} | engine.capacity()


def answers(
    engine: Engine, text: Text, prompts: list[list[int]], most: int, stops: list[str]
) -> tuple[list[dict[str, Any]], float]:
    """An answer {"text", "tokens", "finish"} for each prompt, and the seconds of all steps.

    most: tokens of an answer. stops: texts after which an answer is over: its request is ended
    then. finish is "length" where an answer was cut off, else "stop".
    """
    found: dict[str, dict[str, Any]] = {
        str(i): {"text": "", "tokens": [], "finish": ""} for i in range(len(prompts))
    }
    for name, prompt in zip(found, prompts, strict=True):
        engine.add(name, prompt, most, text.ends)
    done, seconds = 0, 0.0
    child.progress(done, len(found))
    for step in engine.steps():
        seconds += step.seconds
        for name, tokens in step.tokens.items():
            answer = found[name]
            answer["tokens"] += tokens
            answer["text"] = text.decode(answer["tokens"])
            if any(stop in answer["text"] for stop in stops):
                if name not in step.finished:
                    engine.drop(name)
                step.finished[name] = "stop"
        for name, finish in step.finished.items():
            found[name]["finish"] = finish
            done += 1
            child.progress(done, len(found))
    return list(found.values()), seconds


if __name__ == "__main__":
    child.serve(measure)
