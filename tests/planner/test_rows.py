"""The reported models: what is right for each, and that no other rule beats it."""

from __future__ import annotations

import pytest

from scripts.plan import planner
from scripts.plan.geometry import Geometry, named
from scripts.plan.rivals import RIVALS, stock
from tests.planner.counting import cost, layer_types

MEMORY = 12 * 2**30
GEOMETRIES = named()

# model: group size, groups, full-attention slots
RIGHT = {
    "qwen3.6-27b": (16, 4, 16),
    "qwen3.6-27b-dflash": (16, 5, 16),
    "qwen3.6-27b-dflash-full": (8, 10, 24),
    "qwen3.6-35b-a3b-dflash": (5, 10, 15),
    "gpt-oss-20b-eagle": (13, 2, 13),
    "gpt-oss-120b-eagle": (19, 2, 19),
    "mimo-draft": (9, 7, 9),
    "gemma-3-27b": (10, 7, 10),
    "laguna-xs.2": (10, 4, 10),
    "17-full-12-sliding": (17, 2, 17),
    "20-full-30-sliding": (20, 3, 20),
    "10-full-16-sliding": (10, 3, 10),
}
# model: what the old rule and the three open proposals give (stock size, groups, full slots; then
# the proposals' size, groups and full slots where they differ from it)
REPORTED = {
    "gpt-oss-120b-eagle": ((19, 2, 19), {}),
    "17-full-12-sliding": ((17, 2, 17), {"#49472": (6, 5, 18)}),
    "mimo-draft": (
        (5, 11, 10),
        {"#49472": (10, 6, 10), "#58175": (3, 18, 9), "#56445": (1, 53, 9)},
    ),
    "qwen3.6-27b-dflash": (
        (5, 15, 20),
        {"#49472": (8, 9, 16), "#58175": (4, 18, 16), "#56445": (1, 69, 16)},
    ),
    "qwen3.6-35b-a3b-dflash": ((1, 46, 11), {"#49472": (5, 10, 15)}),
    "qwen3.6-27b-dflash-full": ((1, 70, 17), {"#49472": (8, 10, 24)}),
    "20-full-30-sliding": ((20, 3, 20), {"#49472": (10, 5, 20), "#56445": (10, 5, 20)}),
    "10-full-16-sliding": ((10, 3, 10), {"#56445": (2, 13, 10)}),
    "gemma-3-27b": ((10, 7, 10), {"#49472": (13, 5, 13), "#56445": (2, 31, 10)}),
}


def shape(plan: planner.Plan) -> tuple[int, int, int]:
    return plan.group_size, plan.groups, plan.full_slots


def test_every_named_model_has_its_right_plan_here() -> None:
    assert RIGHT.keys() == GEOMETRIES.keys()


@pytest.mark.parametrize("name", RIGHT)
def test_right_plan(name: str) -> None:
    after = planner.plan(GEOMETRIES[name], MEMORY, module=planner.after())
    assert shape(after) == RIGHT[name]


@pytest.mark.parametrize("name", REPORTED)
def test_other_rules_give_what_was_reported(name: str) -> None:
    was, others = REPORTED[name]
    before = planner.plan(GEOMETRIES[name], MEMORY, module=planner.before())
    assert shape(before) == was
    for rival, rule in RIVALS.items():
        plan = planner.rival_plan(GEOMETRIES[name], MEMORY, rule)
        assert shape(plan) == others.get(rival, was), rival


@pytest.mark.parametrize("dtype", planner.DTYPES)
@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("name", RIGHT)
def test_no_rule_beats_the_plan(name: str, tp: int, dtype: str) -> None:
    geometry = GEOMETRIES[name]
    specs = planner.after().unify_kv_cache_spec_page_size(planner.specs(geometry, dtype, tp))
    types = layer_types(specs)
    counts = [layers for layers, _ in types]
    full = [planner.grows(spec) for _, spec in types]
    config = planner.config(geometry.context)
    ours = cost(types, planner.after()._select_group_size(config, types), geometry.context)
    for rule in (stock, *RIVALS.values()):
        rival = cost(types, rule(counts, full), geometry.context)
        assert not rival.dominates(ours), rule.__doc__


def test_seed_setting_gains_at_least_19_percent() -> None:
    geometry = GEOMETRIES["qwen3.6-27b-dflash"]
    before = planner.plan(geometry, MEMORY, module=planner.before())
    after = planner.plan(geometry, MEMORY, module=planner.after())
    assert after.tokens >= 1.19 * before.tokens
    assert after.engine_tokens >= 1.19 * before.engine_tokens
    assert after.bytes_per_token == 16 * 4 * 256 * 2 * 2
    assert before.bytes_per_token == 20 * 4 * 256 * 2 * 2


def test_capacity_is_slope_and_intercept() -> None:
    """12 GiB hold what intercept and slope say, to within one block of every group."""
    plan = planner.plan(GEOMETRIES["laguna-xs.2"], MEMORY, module=planner.after())
    used = plan.intercept + plan.bytes_per_token * plan.tokens
    block = plan.bytes_per_token * plan.block_size
    assert MEMORY - 3 * block < used <= MEMORY
    assert plan.bytes_per_token == 10 * 8 * 128 * 2 * 2


@pytest.mark.parametrize("tp,rows", [(1, 15 * 2), (2, 15), (4, 10 + 5 / 2)])
def test_two_kv_heads_over_more_ranks(tp: int, rows: float) -> None:
    """Four ranks hold copies of the target's two heads: no less per rank than with two ranks.

    The drafter's four heads still shrink: its one full layer then has blocks of twice the tokens.
    """
    geometry = GEOMETRIES["qwen3.6-35b-a3b-dflash"]
    plan = planner.plan(geometry, MEMORY, module=planner.after(), tp=tp)
    assert shape(plan) == RIGHT[geometry.name]
    assert plan.bytes_per_token == rows * 256 * 2 * 2


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_int8_drafter_keeps_long_blocks(tp: int) -> None:
    """2,080 bytes a token in the target, 2,112 in the drafter: neither divides the other."""
    geometry = GEOMETRIES["qwen3.6-27b-dflash"]
    specs = planner.specs(geometry, "int8_per_token_head", tp)
    config = planner.config(geometry.context)
    groups = planner.after().get_kv_cache_groups(config, dict(specs))
    (drafter,) = (g for g in groups if "sliding" in g.layer_names[0])
    (target,) = (g for g in groups if planner.grows(g.kv_cache_spec))
    assert drafter.kv_cache_spec.block_size == target.kv_cache_spec.block_size > 700
    blocks = drafter.kv_cache_spec.max_memory_usage_bytes(config)
    assert blocks <= 9 * drafter.kv_cache_spec.page_size_bytes
    # The target's rows carry the difference: 1.5 %.
    row = target.kv_cache_spec.page_size_bytes / target.kv_cache_spec.block_size
    assert row == 2112 // tp


def test_short_context_weighs_bounded_layers_more() -> None:
    geometry = GEOMETRIES["20-full-30-sliding"]
    plan = planner.plan(geometry, MEMORY, module=planner.after(), context=1024)
    assert shape(plan) == (10, 5, 20)


def test_unnamed_single_type() -> None:
    """One type only: one group, nothing to choose."""
    dense = Geometry("dense", "dense", 32768, GEOMETRIES["laguna-xs.2"].types[:1])
    assert shape(planner.plan(dense, MEMORY, module=planner.after())) == (10, 1, 10)
