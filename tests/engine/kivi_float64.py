"""The tiny Llama in float64 over an INT4-KIVI cache, step by step.

The format is written from its definition (architecture, section 7), not from the engine's code: 16
numbers share an e4m3 scale, of K a channel of 16 tokens, of V 16 channels of a token.
"""

from functools import partial

import numpy as np
from float64_reference import attend, run_model

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
        out[first:end] = attend(q[first:end], keys, seen, first)
    return out


def log_probabilities(
    named: dict[str, np.ndarray],
    tokens: list[int],
    steps: list[tuple[int, int]],
) -> np.ndarray:
    """What `run_model` returns; `steps` are the first and end token of each step of the engine."""
    return run_model(named, tokens, partial(_attend, steps=steps))
