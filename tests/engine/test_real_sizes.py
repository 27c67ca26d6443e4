"""The engine at real sizes on a GPU, in bfloat16: each scenario as its requests alone.

Rounding depends on what a step computes together, and of the compressed formats on where chunks
begin. So tokens are equal up to ties: where two runs part, both tokens are about as likely.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_llama
import scenarios
from engine_client import Engine

pytestmark = pytest.mark.gpu
SHAPE = random_llama.Shape(512, 768, 2, 24, 4, 256, 1024, 32768)
# Of each cache: how much the log-probabilities of a token may differ in two runs, and the least
# share of tokens before the first tie. Four bits say less of a row, so more depends on where chunks
# begin.
CACHES = {
    "int8_per_token_head": (0.15, 0.5),
    "int4_per_token_head": (0.5, 0.1),
    "int4_kivi": (0.5, 0.1),
}
BLOCKS = 1560
LONGEST = 24576  # tokens of a request that fits into them
SHARE = 0.1  # of the GPU's memory


def start(folder: Path, cache: str, name: str, blocks: int = BLOCKS, **options: Any) -> Engine:
    options = {
        "dtype": "bfloat16",
        "max_model_len": LONGEST,
        "max_num_batched_tokens": 2048,
        "enforce_eager": False,
        "compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"},
        "kv_cache_memory_bytes": 1 << 30,
        "gpu_memory_utilization": SHARE,
    } | options
    return Engine(folder, cache, folder / f"{name}-{cache}.log", blocks, options, native=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_llama.write(tmp_path_factory.mktemp("llama-d256"), SHAPE)


@pytest.fixture(scope="module", params=CACHES)
def cache(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def engine(folder: Path, cache: str) -> Iterator[Engine]:
    engine = start(folder, cache, "gpu")
    yield engine
    engine.close()


request = partial(scenarios.request, vocabulary=SHAPE.vocabulary)


def compare(asked: list[dict[str, Any]], got: dict[str, Any], engine: Engine, cache: str) -> None:
    """Each request's tokens with those that it gets alone, up to the first tie."""
    tie, share = CACHES[cache]
    agreed = 0
    for index, one in enumerate(asked):
        alone = engine.play(one | {"arrives": 0})
        pairs = zip(
            got["tokens"][index],
            alone["tokens"][0],
            got["logprobs"][index],
            alone["logprobs"][0],
            strict=True,
        )
        for mine, other, mine_p, other_p in pairs:
            assert abs(mine_p - other_p) <= tie
            if mine != other:
                break
            agreed += 1
    assert agreed >= sum(one["tokens"] for one in asked) * share


def test_a_prompt_that_arrives_while_another_decodes(engine: Engine, cache: str) -> None:
    asked = [request(1, 8000, tokens=40), request(2, 15000, tokens=8, arrives=6)]
    got = engine.play(*asked)
    assert got["most_in_a_step"] == 2
    compare(asked, got, engine, cache)


def test_prefix_cache_hits(engine: Engine, cache: str) -> None:
    first = request(3, 9000, tokens=4)
    longer = first | {"prompt": first["prompt"] + request(4, 3000, 0)["prompt"]}
    engine.play(first)
    got = engine.play(longer, forget=False)
    assert got["cached"] == [8992]
    compare([longer], got, engine, cache)


def test_preemption_and_recompute(engine: Engine, cache: str) -> None:
    asked = [request(5, 12400, tokens=100), request(6, 12400, tokens=100)]
    got = engine.play(*asked)
    assert got["preemptions"] >= 1
    compare(asked, got, engine, cache)


def test_ngram_speculation_with_rejections(engine: Engine, folder: Path, cache: str) -> None:
    few = np.random.default_rng(7).integers(1, SHAPE.vocabulary, 50)
    repetitive = {"prompt": np.resize(few, 8000).tolist(), "tokens": 60, "arrives": 0}
    asked = [repetitive, request(8, 9000, tokens=20, arrives=5)]
    speculation = {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 1,
    }
    speculating = start(folder, cache, "gpu-ngram", speculative_config=speculation)
    try:
        got = speculating.play(*asked)
    finally:
        speculating.close()
    assert 0 < got["accepted"] < got["drafted"]
    compare(asked, got, engine, cache)


def test_no_kernel_is_compiled_while_requests_wait(folder: Path, cache: str) -> None:
    """The JIT monitor fails a step that compiles one."""
    speculation = {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 1,
    }
    # Chunks, prefixes, last chunks of one to sixteen tokens, up to twelve requests at a time.
    lengths = [500, 2048, 2051, 4100, 2500, 6144 + 9, 100, 2048 + 16, 7000, 33, 4096 + 6, 3000]
    asked = [request(i, n, tokens=40, arrives=2 * i) for i, n in enumerate(lengths)]
    few = np.random.default_rng(7).integers(1, SHAPE.vocabulary, 50)
    asked.append({"prompt": np.resize(few, 5000).tolist(), "tokens": 60, "arrives": 3})
    engine = start(
        folder,
        cache,
        "gpu-compiles",
        speculative_config=speculation,
        max_num_seqs=16,
        jit_monitor_mode="error",
    )
    try:
        got = engine.play(*asked)
    finally:
        engine.close()
    assert got["most_in_a_step"] >= 10
    assert [len(tokens) for tokens in got["tokens"]] == [one["tokens"] for one in asked]


def test_memory_stays_within_the_share_that_the_engine_was_given(folder: Path, cache: str) -> None:
    """Scratch and workspaces are counted before the cache takes what is left."""
    import torch

    # Each decodes until the next one's prompt, 15 chunks, is in.
    asked = [request(seed, 30000, tokens=40, arrives=seed) for seed in range(4)]
    unlimited = {"kv_cache_memory_bytes": None, "max_model_len": SHAPE.max_length}
    engine = start(folder, cache, "gpu-memory", blocks=0, **unlimited)
    try:
        got = engine.play(*asked)
    finally:
        engine.close()
    assert got["most_in_a_step"] > 1
    assert 0 < got["reserved_bytes"] <= SHARE * torch.cuda.mem_get_info()[1]
