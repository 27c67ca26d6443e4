"""The tiny Llama in float64 over an INT4-KIVI cache, step by step.

The format is written from its definition (architecture, section 7), not from the engine's code: 16
numbers share an e4m3 scale, of K a channel of 16 tokens, of V 16 channels of a token.
"""

import numpy as np
from float64_reference import _norm, _rotate
from tiny_llama import HEAD_SIZE, HEADS, KV_HEADS, LAYERS

GROUP = 16
FEW = 16  # a step of more is a prompt's chunk, which sees itself as it came
# All positive e4m3 numbers: subnormals, then 1 + m / 8 times powers of two.
SCALES = np.array(
    [m / 8 * 2.0**-6 for m in range(1, 8)]
    + [(1 + m / 8) * 2.0**e for e in range(-6, 9) for m in range(8)][:-1]
)


def to_e4m3(numbers: np.ndarray) -> np.ndarray:
    """The nearest positive e4m3 numbers; of two as near, the one with an even mantissa."""
    middle = (SCALES[1:] + SCALES[:-1]) / 2
    index = np.searchsorted(middle, numbers)
    tie = (index < len(middle)) & (middle[np.minimum(index, len(middle) - 1)] == numbers)
    # The number at index i has the byte i + 1.
    return SCALES[index + (tie & (index % 2 == 0))]


def rounded(numbers: np.ndarray) -> np.ndarray:
    """[..., 16] -> what the cache returns of them."""
    largest = np.abs(numbers).max(axis=-1, keepdims=True)
    exponent = np.maximum(np.floor(np.log2(np.maximum(largest, 1e-30))), -6)
    unit = 2.0 ** (exponent - 13)
    whole = np.rint(np.abs(numbers) / unit) * unit
    best, least = np.zeros_like(numbers), np.full(largest.shape, np.inf)
    for clip in np.linspace(1, 0.5, 16):
        scale = to_e4m3(whole.max(axis=-1, keepdims=True) * clip / 7)
        coded = np.minimum(np.rint(whole / scale), 7) * scale
        error = ((whole - coded) ** 2).sum(axis=-1, keepdims=True)
        best = np.where(error < least, coded, best)
        least = np.minimum(error, least)
    return best * np.sign(numbers)


def cached_keys(k: np.ndarray) -> np.ndarray:
    """K of [tokens, heads, size] as sealed; of the last group, which may be open, nothing."""
    groups = len(k) // GROUP
    whole = k[: groups * GROUP].reshape(groups, GROUP, *k.shape[1:])
    sealed = np.moveaxis(rounded(np.moveaxis(whole, 1, -1)), -1, 1)
    return sealed.reshape(-1, *k.shape[1:])


def cached_values(v: np.ndarray) -> np.ndarray:
    """V of [tokens, heads, size] as the cache returns it."""
    return rounded(v.reshape(*v.shape[:-1], -1, 16)).reshape(v.shape)


def _attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, steps: list[tuple[int, int]]
) -> np.ndarray:
    """Each step's rows over what they are to see of K and V."""
    sealed, values = cached_keys(k), cached_values(v)
    out = np.empty_like(q)
    for first, end in steps:
        closed = first // GROUP * GROUP
        keys, seen = k[:end].copy(), values[:end].copy()
        keys[:closed] = sealed[:closed]
        if end - first > FEW:
            seen[first:] = v[first:end]
        keys, seen = (np.repeat(x, HEADS // KV_HEADS, axis=1) for x in (keys, seen))
        scores = np.einsum("qhd,khd->hqk", q[first:end], keys) / HEAD_SIZE**0.5
        mask = np.arange(end) > np.arange(first, end)[:, None]
        scores[:, mask] = -np.inf
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[first:end] = np.einsum("hqk,khd->qhd", p / p.sum(axis=-1, keepdims=True), seen)
    return out


def log_probabilities(
    named: dict[str, np.ndarray],
    tokens: list[int],
    steps: list[tuple[int, int]],
) -> np.ndarray:
    """[token, vocabulary] log-probabilities of what follows each token of the sequence.

    `steps` are the first and end token of each step of the engine.
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
        attended = _attend(_rotate(q), _rotate(k), v, steps)
        x = x + attended.reshape(len(tokens), -1) @ w[f"{prefix}.self_attn.o_proj.weight"].T
        normed = _norm(x, w[f"{prefix}.post_attention_layernorm.weight"])
        gate = normed @ w[f"{prefix}.mlp.gate_proj.weight"].T
        up = normed @ w[f"{prefix}.mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{prefix}.mlp.down_proj.weight"].T
    logits = _norm(x, w["model.norm.weight"]) @ w["lm_head.weight"].T
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
