"""INT4-KIVI in the engine: against float64, and the same bytes however the tokens came.

What the store and its slots do with every arrival is the series' own tests' (a state machine); here
are the engine's scheduler and block tables. Interpreted kernels are slow: each scenario is
as short as shows it.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_llama
import scenarios
from engine_client import Engine
from kivi_float64 import GROUP, log_probabilities
from scenarios import TOLERANCE, error, repetitive, request
from steps import Steps, forgotten

# Prompts are cut every 24 tokens; ranges are of 32 keys.
CHUNK, RANGE = 24, 32
SPECULATION: dict[str, Any] = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_max": 2,
    "prompt_lookup_min": 1,
}
# Hexadecimal digits of a group: 18 bytes a channel.
GROUP_DIGITS = 2 * 18 * random_llama.KV_HEADS * random_llama.HEAD_SIZE


def start(checkpoint: Path, name: str, blocks: int, **options: Any) -> Engine:
    """An engine of fused kernels and FlashAttention."""
    options |= {
        "max_num_batched_tokens": CHUNK,
        "async_scheduling": False,
        "range_tokens": RANGE,
        "steps": True,
    }
    return Engine(checkpoint, "int4_kivi", checkpoint / f"{name}.log", blocks, options)


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Iterator[Engine]:
    """Room for two requests of 48 tokens, and for a block more."""
    engine = start(checkpoint, "kivi", 8)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def speculating(checkpoint: Path) -> Iterator[Engine]:
    engine = start(checkpoint, "kivi-ngram", 24, speculative_config=SPECULATION)
    yield engine
    engine.close()


def over_kivi(sequence: list[int], steps: Steps) -> np.ndarray:
    return log_probabilities(random_llama.weights(), sequence, steps)


def check(
    asked: dict[str, Any], got: dict[str, Any], index: int = 0, before: Any = (), known: int = 0
) -> None:
    """Compare from the request's `known`-th token on."""
    scenarios.check(asked, got, index, over_kivi, CHUNK, before, known)


def check_bytes(asked: dict[str, Any], got: dict[str, Any], index: int, alone: Engine) -> None:
    """The sealed groups of the tokens that the request has in common with itself alone."""
    expected = alone.play(asked | {"arrives": 0})
    mine, others = got["tokens"][index], expected["tokens"][0]
    same = next((i for i, (a, b) in enumerate(zip(mine, others, strict=True)) if a != b), len(mine))
    groups = min(len(asked["prompt"]) + same, got["edges"][index][-1]) // GROUP
    assert groups > 0
    digits = groups * GROUP_DIGITS
    assert len(got["sealed"][index]) >= digits
    assert got["sealed"][index][:digits] == expected["sealed"][0][:digits]


def test_tokens_equal_the_reference_and_it_tells_other_steps(engine: Engine) -> None:
    """A group is completed by the decode's fourth token."""
    asked = request(3, 44, tokens=7)
    got = engine.play(asked)
    check(asked, got)
    edges = got["edges"][0]
    assert edges[:3] == [0, 24, 44] and got["ranges"] > 0
    other = list(pairwise([0, 16, *edges[2:]]))
    assert error(asked, got, 0, other, over_kivi).max() > 10 * TOLERANCE


def test_prefix_cache_hits(engine: Engine) -> None:
    asked = request(15, 36, tokens=2)
    first = engine.play(asked)
    longer = asked | {"prompt": asked["prompt"] + request(16, 20, 0)["prompt"]}
    second = engine.play(longer, forget=False)
    assert (first["cached"], second["cached"]) == ([0], [32])
    assert second["sealed"][0].startswith(first["sealed"][0])
    check(longer, second, before=first["edges"][0])


def test_preemption_and_recompute_beside_another_request(engine: Engine) -> None:
    requests = [request(17, 44, tokens=12), request(18, 46, tokens=9, arrives=3)]
    together = engine.play(*requests)
    assert together["preemptions"] >= 1 and together["most_in_a_step"] == 2
    for index, asked in enumerate(requests):
        # The tokens before it was preempted were computed in steps that are forgotten.
        known = forgotten(together["edges"][index], len(asked["prompt"]))
        check(asked, together, index, known=known)
    check_bytes(requests[1], together, 1, engine)


def test_ngram_speculation_with_rejections(engine: Engine, speculating: Engine) -> None:
    requests = [repetitive(19, 40, tokens=14), request(21, 33, tokens=5, arrives=4)]
    got = speculating.play(*requests)
    assert 0 < got["accepted"] < got["drafted"]
    for index, asked in enumerate(requests):
        check(asked, got, index)
    check_bytes(requests[0], got, 0, engine)
