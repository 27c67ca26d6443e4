"""The engine over interpreted kernels: against float64, prefix cache, mixing, preemption."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import random_llama
from engine_client import Engine
from float64_reference import int4_rows, int8_rows, log_probabilities
from scenarios import request

# float32 against float64 through two layers: 4e-6 was measured, and a code that rounds the other
# way moves about 1e-3.  The quantisation itself moves 2e-2 and more.
TOLERANCE = 1e-3


def deviations(
    asked: dict[str, Any],
    tokens: list[int],
    logprobs: list[float],
    quantise: Callable[[np.ndarray], np.ndarray] | None = int8_rows,
) -> tuple[float, float]:
    """How far the engine is from the reference that reads the engine's own tokens.

    Returns the largest difference of a chosen token's log-probability, and the largest lead that
    another token had over the chosen one: a tie in exact numbers may be decided either way.
    """
    sequence = asked["prompt"] + tokens
    expected = log_probabilities(random_llama.weights(), sequence[:-1], quantise)[-len(tokens) :]
    chosen = expected[np.arange(len(tokens)), tokens]
    return np.abs(chosen - logprobs).max(), (expected.max(axis=-1) - chosen).max()


@pytest.mark.parametrize(("seed", "length"), [(1, 1), (2, 16), (3, 37)])
def test_int8_tokens_equal_the_dequantised_reference(int8: Engine, seed: int, length: int) -> None:
    asked = request(seed, length, tokens=20)
    got = int8.play(asked)
    difference, lead = deviations(asked, got["tokens"][0], got["logprobs"][0])
    assert lead <= TOLERANCE
    assert difference <= TOLERANCE


def test_the_reference_tells_int8_from_an_unquantised_cache(int8: Engine) -> None:
    asked = request(3, 37, tokens=20)
    got = int8.play(asked)
    difference, _ = deviations(asked, got["tokens"][0], got["logprobs"][0], quantise=None)
    assert difference > 10 * TOLERANCE


def test_int4_tokens_equal_the_dequantised_reference(int4: Engine) -> None:
    asked = request(3, 37, tokens=20)
    got = int4.play(asked)
    difference, lead = deviations(asked, got["tokens"][0], got["logprobs"][0], int4_rows)
    assert lead <= TOLERANCE
    assert difference <= TOLERANCE
    far, _ = deviations(asked, got["tokens"][0], got["logprobs"][0], int8_rows)
    assert far > 10 * TOLERANCE


def test_a_second_identical_prompt_hits_the_prefix_cache(int8: Engine) -> None:
    asked = request(4, 40, tokens=6)
    first = int8.play(asked)
    second = int8.play(asked, forget=False)
    assert first["cached"] == [0]
    assert second["cached"] == [32]
    assert second["tokens"] == first["tokens"]
    assert second["logprobs"][0] == pytest.approx(first["logprobs"][0], abs=1e-4)


def test_a_request_that_arrives_while_another_decodes(int8: Engine) -> None:
    early, late = request(5, 20, tokens=14), request(6, 35, tokens=6, arrives=4)
    alone = [int8.play(one | {"arrives": 0})["tokens"][0] for one in (early, late)]
    mixed = int8.play(early, late)
    assert mixed["most_in_a_step"] == 2
    assert mixed["tokens"] == alone


def test_a_preempted_request_equals_the_same_alone(int8: Engine) -> None:
    requests = [request(7, 33, tokens=36), request(8, 31, tokens=36)]
    alone = [int8.play(one) for one in requests]
    together = int8.play(*requests)
    assert [one["preemptions"] for one in alone] == [0, 0]
    assert together["preemptions"] >= 1
    assert together["tokens"] == [one["tokens"][0] for one in alone]
