"""Teacher-forced log-probabilities by the real engine: a worker.

A step takes at most `chunk_each` tokens of a text (16: what the fused kernels take), so that every
row is read back from the cache, those of the step's own tokens included. Longer chunks of a prompt
may attend to their own rows before they are quantised.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from scripts.quality.metrics import Scores
from scripts.serving import child
from scripts.serving.engines import Engine, Settings


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Write the scores of each kind of text to its file.

    job: engine (Settings), texts: kind -> {"windows": token ids, "file": .npz to write, unless it
    is there}.
    """
    settings = Settings(**job["engine"])
    engine = Engine(settings)
    todo = {k: v for k, v in job["texts"].items() if not Path(v["file"]).exists()}
    total = sum(len(text["windows"]) for text in todo.values())
    done = 0
    for text in todo.values():
        scores = []
        windows = text["windows"]
        for first in range(0, len(windows), settings.requests):
            child.progress(done, total)
            batch = windows[first : first + settings.requests]
            scores += score(engine, batch)
            done += len(batch)
        Scores.joined(scores).save(Path(text["file"]))
    child.progress(total, total)
    return engine.capacity()


def score(engine: Engine, windows: list[list[int]]) -> list[Scores]:
    """The scores of a batch of windows, of every token but the first."""
    from vllm import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1, detokenize=False)
    prompts = [{"prompt_token_ids": window} for window in windows]
    outputs = engine.llm.generate(prompts, params, use_tqdm=False)
    return [
        _scores(window, output.prompt_logprobs)
        for window, output in zip(windows, outputs, strict=True)
    ]


def _scores(window: list[int], told: list[Any]) -> Scores:
    """From what the engine tells of each token: the text's own, and the most probable one."""
    chosen = [row[token].logprob for token, row in zip(window[1:], told[1:], strict=True)]
    top = [min(row.items(), key=lambda item: item[1].rank)[0] for row in told[1:]]
    return Scores(np.array([chosen], np.float32), np.array([top], np.int32))


if __name__ == "__main__":
    child.serve(measure)
