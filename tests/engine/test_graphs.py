"""Full CUDA graphs follow the requests' state, never a step's shape: replayed against eager."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_llama
from engine_client import Engine

sys.path.append(str(Path(__file__).parents[1] / "scale_views"))
import tiny_hybrid  # noqa: E402

DRAFTS = 3
SPECULATION = {
    "method": "ngram",
    "num_speculative_tokens": DRAFTS,
    "prompt_lookup_max": 2,
    "prompt_lookup_min": 1,
}


def start(model: Path, name: str, cache: str, **options: Any) -> Engine:
    """An engine of the first model runner, which takes shapes for state where it may."""
    options |= {"range_tokens": 32, "enable_prefix_caching": False}
    variables = {"VLLM_QUANT_KV_PREFILL": "1", "VLLM_USE_V2_MODEL_RUNNER": "0"}
    return Engine(model, cache, model / f"{name}-{cache}.log", 24, options, variables)


def pair(model: Path, cache: str, sizes: list[int], **options: Any) -> Iterator[tuple[Engine, ...]]:
    engines = (
        start(model, "graphs", cache, graphs=sizes, **options),
        start(model, "eager", cache, **options),
    )
    yield engines
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module", params=["int8_per_token_head"])
def verifying(request: pytest.FixtureRequest, checkpoint: Path) -> Iterator[tuple[Engine, ...]]:
    """Graphs of 1 to 4 verifications of 1 + DRAFTS tokens; and an engine without."""
    sizes = [(1 + DRAFTS) * requests for requests in (1, 2, 4)]
    yield from pair(checkpoint, request.param, sizes, speculative_config=SPECULATION)


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, ...]]:
    """Graphs of 1 to 4 decodes of a model with recurrent states; and an engine without."""
    model = tmp_path_factory.mktemp("tiny-hybrid")
    tiny_hybrid.write(model)
    yield from pair(model, "int8_per_token_head", [1, 2, 4])


def prompt(seed: int, length: int, tokens: int, arrives: int = 0) -> dict[str, Any]:
    """A request whose prompt holds no token twice."""
    vocabulary = np.arange(1, random_llama.VOCABULARY)
    chosen = np.random.default_rng(seed).permutation(vocabulary)[:length]
    return {"prompt": chosen.tolist(), "tokens": tokens, "arrives": arrives}


def equal(engines: tuple[Engine, ...], *requests: dict[str, Any]) -> list[str]:
    """How each step ran, after the same requests gave the same with graphs and without."""
    graphs, eager = (engine.play(*requests) for engine in engines)
    assert graphs["tokens"] == eager["tokens"]
    for one, other in zip(graphs["logprobs"], eager["logprobs"], strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    return graphs["modes"]


@pytest.mark.parametrize("length", [3, 4, 5])
def test_a_prompt_of_as_many_tokens_as_a_verification(
    verifying: tuple[Engine, ...], length: int
) -> None:
    """With 3 draft tokens: alone, and beside requests that decode."""
    modes = equal(verifying, prompt(length, length, tokens=8))
    assert modes[0] == "NONE"
    # Most of what it decodes is found in its prompt, and brings drafts.
    decoding = prompt(31, 64, tokens=24)
    arriving = [prompt(seed, length, tokens=3, arrives=seed) for seed in (3, 5)]
    modes = equal(verifying, decoding, *arriving)
    assert modes[0] == modes[3] == modes[5] == "NONE"
    assert modes.count("FULL") > 1


def test_a_prompt_of_one_token_beside_decodes_of_a_hybrid_model(
    hybrid: tuple[Engine, ...],
) -> None:
    """Its recurrent states begin at zero, whatever the request before left in their place."""
    equal(hybrid, *(prompt(seed, 20, tokens=6) for seed in (40, 41, 42)))
    modes = equal(hybrid, prompt(43, 1, tokens=6))
    assert modes == ["NONE"] + 5 * ["FULL"]
    decoding = [prompt(44, 20, tokens=12), prompt(45, 9, tokens=12)]
    modes = equal(hybrid, *decoding, prompt(46, 1, tokens=6, arrives=4))
    assert [step for step, mode in enumerate(modes) if mode == "NONE"] == [0, 4]
