"""Prefill through a small scratch in the engine: chunks, mixed steps, prefix cache, speculation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_llama
import scenarios
from engine_client import Engine
from float64_reference import int4_rows, int8_rows, log_probabilities
from scenarios import TOLERANCE, repetitive, request
from steps import Steps, forgotten

# Chunks of 24 tokens, ranges of 32 keys: a prompt of 80 takes both several times.
CHUNK, RANGE = 24, 32
CACHES = {"int8_per_token_head": int8_rows, "int4_per_token_head": int4_rows}


def prefill_engine(checkpoint: Path, cache: str, name: str, blocks: int, **options: Any) -> Engine:
    options |= {
        "max_num_batched_tokens": CHUNK,
        "async_scheduling": False,
        "range_tokens": RANGE,
        "steps": True,
    }
    log = checkpoint / f"{name}-{cache}.log"
    on = {"VLLM_QUANT_KV_PREFILL": "1"}
    return Engine(checkpoint, cache, log, blocks, options, on)


# A step of more tokens is a prompt's chunk, which sees itself unquantised: results depend on where
# chunks begin, which is elsewhere with other requests beside it or after a preemption. In 8 bits
# that changes no token of these tests, which must be those of the request alone; in both formats
# they must be the float64 model's over the same steps.
FEW = 16
EXACT = "int8_per_token_head"
int8_alone = pytest.mark.parametrize("cache", ["int8_per_token_head"], indirect=True)


@pytest.fixture(scope="module", params=CACHES)
def cache(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def engine(checkpoint: Path, cache: str) -> Iterator[Engine]:
    # Nothing of what the warm-up stores or leaves behind may be seen.
    engine = prefill_engine(checkpoint, cache, "prefill", 12, warm=cache == EXACT)
    yield engine
    engine.close()


def alone(engine: Engine, *requests: dict[str, Any]) -> list[list[int]]:
    """Each request's tokens when it has the engine for itself."""
    return [engine.play(one | {"arrives": 0})["tokens"][0] for one in requests]


def check(
    asked: dict[str, Any],
    got: dict[str, Any],
    cache: str,
    index: int = 0,
    before: Any = (),
    known: int = 0,
) -> None:
    """Compare with float64 over the same steps, from the request's `known`-th token on."""

    def over_cache(sequence: list[int], steps: Steps) -> np.ndarray:
        chunks = [(first, end) for first, end in steps if end - first > FEW]
        return log_probabilities(random_llama.weights(), sequence, CACHES[cache], chunks=chunks)

    scenarios.check(asked, got, index, over_cache, CHUNK, before, known)


def test_chunks_and_ranges_are_what_they_should_be(engine: Engine) -> None:
    got = engine.play(request(11, 80, tokens=2))
    # Chunks begin at 0, 24 and 48, in two layers each; the last 8 tokens are few enough for the
    # fused kernel.
    assert got["causal"] == 2 * 3
    assert got["ranges"] == 2 * (0 + 1 + 2)


def test_chunks_see_themselves_unquantised_and_their_prefix_dequantised(
    engine: Engine, cache: str
) -> None:
    asked = request(12, 70, tokens=8)
    got = engine.play(asked)
    tokens = got["tokens"][0]
    sequence = asked["prompt"] + tokens

    def difference(chunks: list[tuple[int, int]]) -> float:
        """The largest of the chosen tokens' log-probabilities."""
        expected = log_probabilities(
            random_llama.weights(), sequence[:-1], CACHES[cache], chunks=chunks
        )
        chosen = expected[-len(tokens) :][np.arange(len(tokens)), tokens]
        return np.abs(chosen - got["logprobs"][0]).max()

    assert difference([(0, 24), (24, 48), (48, 70)]) <= TOLERANCE
    assert difference([]) > 10 * TOLERANCE
    assert difference([(0, 70)]) > 10 * TOLERANCE


def test_a_request_that_arrives_while_another_decodes(engine: Engine, cache: str) -> None:
    early, late = request(13, 30, tokens=14), request(14, 60, tokens=6, arrives=4)
    mixed = engine.play(early, late)
    assert mixed["most_in_a_step"] == 2
    assert mixed["ranges"] > 0
    for index, asked in enumerate([early, late]):
        check(asked, mixed, cache, index)
    if cache == EXACT:
        assert mixed["tokens"] == alone(engine, early, late)


def test_a_chunk_behind_a_cached_prefix_while_another_decodes(engine: Engine, cache: str) -> None:
    """The chunk begins at the end of the prefix, alone and beside others."""
    early, late = request(22, 15, tokens=10), request(23, 68, tokens=5, arrives=4)
    prefix = late | {"prompt": late["prompt"][:49], "tokens": 1, "arrives": 0}

    def behind_the_prefix(*requests: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        before = engine.play(prefix)
        return engine.play(*requests, forget=False), before["edges"][0]

    mixed, edges = behind_the_prefix(early, late)
    assert mixed["cached"] == [0, 48] and mixed["most_in_a_step"] == 2
    assert mixed["causal"] == 2 and mixed["ranges"] == 2 * 2
    check(early, mixed, cache, 0)
    check(late, mixed, cache, 1, before=edges)
    if cache == EXACT:
        expected = [behind_the_prefix(one | {"arrives": 0})[0] for one in (early, late)]
        assert mixed["tokens"] == [one["tokens"][0] for one in expected]


@int8_alone
def test_prefix_cache_hits(engine: Engine) -> None:
    asked = request(15, 60, tokens=6)
    first = engine.play(asked)
    second = engine.play(asked, forget=False)
    assert (first["cached"], second["cached"]) == ([0], [48])
    # 12 tokens are left to compute, which the fused kernel serves.
    assert second["causal"] == 0
    assert second["tokens"] == first["tokens"]
    longer = asked | {"prompt": asked["prompt"] + request(16, 25, 0)["prompt"]}
    third = engine.play(longer, forget=False)
    assert third["cached"] == [48] and third["ranges"] > 0
    assert third["tokens"] == engine.play(longer)["tokens"]


def test_preemption_and_recompute(engine: Engine, cache: str) -> None:
    requests = [request(17, 60, tokens=34), request(18, 62, tokens=32)]
    together = engine.play(*requests)
    assert together["preemptions"] >= 1
    for index, asked in enumerate(requests):
        known = forgotten(together["edges"][index], len(asked["prompt"]))
        check(asked, together, cache, index, known=known)
    if cache == EXACT:
        assert together["tokens"] == alone(engine, *requests)


def test_ngram_speculation_with_rejections(engine: Engine, checkpoint: Path, cache: str) -> None:
    requests = [
        repetitive(19, 40, tokens=24),
        repetitive(20, 33, tokens=20, arrives=3),
        request(21, 50, tokens=8, arrives=6),
    ]
    speculation = {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 2,
        "prompt_lookup_min": 1,
    }
    speculating = prefill_engine(checkpoint, cache, "ngram", 24, speculative_config=speculation)
    try:
        got = speculating.play(*requests)
    finally:
        speculating.close()
    assert 0 < got["accepted"] < got["drafted"]
    assert got["ranges"] > 0
    for index, asked in enumerate(requests):
        check(asked, got, cache, index)
    if cache == EXACT:
        assert got["tokens"] == alone(engine, *requests)


@int8_alone
@pytest.mark.parametrize("mebibytes", [1, 2])
def test_a_scratch_too_small_for_a_block_is_refused_at_the_start(
    checkpoint: Path, cache: str, mebibytes: int
) -> None:
    """Blocks of 4096 tokens: one mebibyte holds half of one, two hold one."""
    log = checkpoint / f"scratch-{mebibytes}-{cache}.log"
    options = {"block_size": 4096, "range_tokens": 32768}
    variables = {
        "VLLM_QUANT_KV_PREFILL": "1",
        "VLLM_QUANT_KV_PREFILL_SCRATCH_MIB": str(mebibytes),
    }
    engine = Engine(checkpoint, cache, log, options=options, variables=variables)
    try:
        # Without a scenario it ends as soon as it has started.
        engine.process.communicate(timeout=600)
    finally:
        engine.close()
    refusal = (
        "ValueError: VLLM_QUANT_KV_PREFILL_SCRATCH_MIB=1 holds 2048 tokens of this model's layers, "
        "but a block has 4096: set it to 2 or more"
    )
    assert (refusal in log.read_text()) == (mebibytes == 1)
    assert (engine.process.returncode == 0) == (mebibytes == 2)
