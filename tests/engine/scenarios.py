"""Requests for the engine under test, and their answers against float64."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import random_llama
from steps import Steps, histories

# float32 against float64: 3e-6 was measured.  A number in the middle of two codes may go either way
# and moves more; the tests' seeds have none.
TOLERANCE = 1e-3
# The model's log-probabilities [token, vocabulary] of a sequence that such steps computed.
Reference = Callable[[list[int], Steps], np.ndarray]


def request(
    seed: int,
    length: int,
    tokens: int,
    arrives: int = 0,
    vocabulary: int = random_llama.VOCABULARY,
) -> dict[str, Any]:
    """A request with a random prompt."""
    prompt = np.random.default_rng(seed).integers(1, vocabulary, length).tolist()
    return {"prompt": prompt, "tokens": tokens, "arrives": arrives}


def repetitive(seed: int, length: int, tokens: int, arrives: int = 0) -> dict[str, Any]:
    """A request whose prompt repeats itself, so that n-grams are found in it."""
    few = np.random.default_rng(seed).integers(1, random_llama.VOCABULARY, 5)
    return {"prompt": np.resize(few, length).tolist(), "tokens": tokens, "arrives": arrives}


def error(
    asked: dict[str, Any], got: dict[str, Any], index: int, steps: Steps, reference: Reference
) -> np.ndarray:
    """How far the request's log-probabilities are from float64, token by token."""
    tokens, logprobs = got["tokens"][index], got["logprobs"][index]
    expected = reference((asked["prompt"] + tokens)[:-1], steps)[-len(tokens) :]
    chosen = expected[np.arange(len(tokens)), tokens]
    return np.maximum(np.abs(chosen - logprobs), expected.max(axis=-1) - chosen)


def check(
    asked: dict[str, Any],
    got: dict[str, Any],
    index: int,
    reference: Reference,
    chunk: int,
    before: Sequence[int] = (),
    known: int = 0,
) -> None:
    """Compare from the request's `known`-th token on; see `histories`."""
    errors = [
        error(asked, got, index, steps, reference)[known:].max()
        for steps in histories(got["edges"][index], list(before), chunk)
    ]
    assert min(errors) <= TOLERANCE, f"off by {errors}"
