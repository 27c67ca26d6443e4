"""Teacher-forced log-probabilities by the model in torch, float32, on a CPU: a worker.

Every token attends to keys (after their rotation by position) and values that went through the
cache format, its own included, as in the engine's fused kernels; of a format that keeps K of the
open group, to that group's as they came. Nothing else is quantised.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from scripts.quality.formats import RoundTrip, open_tokens, round_trip
from scripts.quality.metrics import Scores
from scripts.serving import child

NAME = "through_a_cache_format"
# The vocabulary's logits of so many tokens at a time.
ROWS = 512


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Write the scores of each kind of text to its file.

    job: model (folder), cache (see formats.round_trip), dtype of the rows that reach the cache,
    texts: kind -> {"windows": token ids, "file": .npz to write, unless it is there}.
    """
    import torch

    dtype = getattr(torch, job["dtype"])
    exact = round_trip("auto", dtype)
    model = load(job["model"], round_trip(job["cache"], dtype), exact, open_tokens(job["cache"]))
    todo = {k: v for k, v in job["texts"].items() if not Path(v["file"]).exists()}
    total = sum(len(text["windows"]) for text in todo.values())
    done = 0
    for text in todo.values():
        scores = []
        for window in text["windows"]:
            child.progress(done, total)
            scores.append(score(model, window))
            done += 1
        Scores.joined(scores).save(Path(text["file"]))
    child.progress(total, total)
    return {"threads": torch.get_num_threads()}


def load(path: str, trip: RoundTrip, exact: RoundTrip, group: int = 0) -> Any:
    """The model in float32, its attention over what the cache gives back.

    group: tokens that share K's scales; keys of a query's own group are `exact`. 0: none are.
    """
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def attend(module: Any, query: Any, key: Any, value: Any, mask: Any, **more: Any) -> Any:
        # [1, KV heads, tokens, head size] -> rows, and back.
        came = key[0].transpose(0, 1), value[0].transpose(0, 1)
        key, value = (row.transpose(0, 1)[None] for row in trip(*came))
        if group:
            mask = twice(mask, key.shape[2], group)
            key = torch.cat([key, exact(*came)[0].transpose(0, 1)[None]], 2)
            value = torch.cat([value, value], 2)
        return sdpa_attention_forward(module, query, key, value, mask, **more)

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation=NAME
    ).eval()


def twice(mask: Any, tokens: int, group: int) -> Any:
    """Who sees which key, [.., tokens, 2 tokens]: other groups' coded keys, its own exact ones.

    mask: bool [.., tokens, tokens], None: causal.
    """
    import torch

    token = torch.arange(tokens)
    seen = token <= token[:, None] if mask is None else mask
    own = token // group == token[:, None] // group
    seen = torch.cat([seen & ~own, seen & own], -1)
    return seen[None, None] if mask is None else seen


def score(model: Any, window: list[int]) -> Scores:
    """One window's scores, of every token but the first."""
    import torch

    with torch.inference_mode():
        tokens = torch.tensor([window])
        hidden = model.model(tokens, use_cache=False).last_hidden_state[0, :-1]
        chosen, top = [], []
        for rows, following in zip(hidden.split(ROWS), tokens[0, 1:].split(ROWS), strict=True):
            logits = model.lm_head(rows).float()
            picked = logits.gather(1, following[:, None])[:, 0]
            chosen.append(picked - logits.logsumexp(1))
            top.append(logits.argmax(1))
    return Scores(torch.cat(chosen).numpy()[None], torch.cat(top).numpy()[None].astype(np.int32))


if __name__ == "__main__":
    child.serve(measure)
