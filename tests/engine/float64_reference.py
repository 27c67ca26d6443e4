"""The tiny Llama in float64, with a cache that holds what a compressed format holds."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from random_llama import EPSILON, HEAD_SIZE, HEADS, KV_HEADS, LAYERS, ROPE_THETA

SMALLEST_SCALE = 1e-6


def int8_rows(rows: np.ndarray) -> np.ndarray:
    """Quantise and dequantise: a scale for each token and head, codes rounded half away from 0."""
    scale = np.maximum(np.abs(rows).max(axis=-1, keepdims=True) / 127, SMALLEST_SCALE)
    codes = np.sign(rows) * np.floor(np.abs(rows / scale) + 0.5)
    return np.clip(codes, -128, 127) * scale


def int4_rows(rows: np.ndarray) -> np.ndarray:
    """Rotate, quantise to 16 levels behind a zero point, dequantise and rotate back.

    Patch 0004's format: the scale keeps the bits of a float32 above its low eight.
    """
    size = rows.shape[-1]
    hadamard = np.ones((1, 1))
    while len(hadamard) < size:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    coins = torch.full((size,), 0.5)
    signs = 2 * torch.bernoulli(coins, generator=torch.Generator().manual_seed(0x9E3779B9)) - 1
    rotation = hadamard * signs.numpy()
    rotated = rows @ rotation.T
    low, high = (edge(rotated, axis=-1, keepdims=True) for edge in (np.min, np.max))
    scale = np.maximum((high - low) / 15, np.maximum(-low, high) / 120)
    scale = np.maximum(scale, SMALLEST_SCALE)
    zero_point = np.sign(-low) * np.floor(np.abs(low / scale) + 0.5)
    codes = np.clip(np.floor(rotated / scale + zero_point + 0.5), 0, 15)
    stored = (scale.astype(np.float32).view(np.int32) & -256).view(np.float32)
    return (codes - zero_point) * stored @ rotation / size


def _norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON) * weight


def _rotate(x: np.ndarray) -> np.ndarray:
    """Rotary embedding of [token, head, size], first half paired with the second."""
    half = HEAD_SIZE // 2
    angle = np.arange(len(x))[:, None] * ROPE_THETA ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, first: int = 0) -> np.ndarray:
    """Causal attention of [token, head, size] queries, `first` and on, over fewer KV heads."""
    k, v = (np.repeat(x, HEADS // KV_HEADS, axis=1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / HEAD_SIZE**0.5
    scores[:, np.arange(len(k)) > np.arange(first, first + len(q))[:, None]] = -np.inf
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", p / p.sum(axis=-1, keepdims=True), v)


def run_model(
    named: dict[str, np.ndarray],
    tokens: list[int],
    attention: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """[token, vocabulary] log-probabilities of what follows each token of the sequence.

    `attention` takes a layer's rotated queries, rotated keys and values, [token, head, size].
    """
    w = {name: value.astype(np.float64) for name, value in named.items()}
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        normed = _norm(x, w[f"{prefix}.input_layernorm.weight"])
        q, k, v = (
            (normed @ w[f"{prefix}.self_attn.{name}_proj.weight"].T).reshape(
                len(tokens), -1, HEAD_SIZE
            )
            for name in "qkv"
        )
        attended = attention(_rotate(q), _rotate(k), v)
        x = x + attended.reshape(len(tokens), -1) @ w[f"{prefix}.self_attn.o_proj.weight"].T
        normed = _norm(x, w[f"{prefix}.post_attention_layernorm.weight"])
        gate = normed @ w[f"{prefix}.mlp.gate_proj.weight"].T
        up = normed @ w[f"{prefix}.mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{prefix}.mlp.down_proj.weight"].T
    logits = _norm(x, w["model.norm.weight"]) @ w["lm_head.weight"].T
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def log_probabilities(
    named: dict[str, np.ndarray],
    tokens: list[int],
    quantise: Callable[[np.ndarray], np.ndarray] | None = int8_rows,
    chunks: Sequence[tuple[int, int]] = (),
) -> np.ndarray:
    """What `run_model` returns, over a cache of rows that are quantised each on its own.

    The tokens of a chunk, from its first to before its end, see each other unquantised.
    """

    def over_cache(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        cached = (quantise(k), quantise(v)) if quantise else (k, v)
        attended = attend(q, *cached)
        for first, end in chunks:
            seen = [
                np.concatenate([old[:first], own[first:end]])
                for old, own in zip(cached, (k, v), strict=True)
            ]
            attended[first:end] = attend(q[first:end], *seen, first)
        return attended

    return run_model(named, tokens, over_cache)
