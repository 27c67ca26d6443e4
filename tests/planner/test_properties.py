"""What holds for every hybrid model, on random ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from counting import cost, group_size, layer_types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.plan import planner
from scripts.plan.geometry import Geometry, LayerType
from scripts.plan.rivals import RIVALS, stock

EXAMPLES = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# All of one page size, as after the release's own unification.
FULL = LayerType("full", 1, kv_heads=4, head_size=128)
OTHER_FULL = LayerType("full", 1, kv_heads=8, head_size=64)
RECURRENT = LayerType("recurrent", 1, state=16384)
WINDOWS = st.sampled_from([1, 128, 512, 1000, 1024, 2048, 4096, 8192])


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    """Two to five layer types with a full-attention one among them, in any order."""
    sliding = [
        replace(FULL, kind=draw(st.sampled_from(["sliding", "chunked"])), window=window)
        for window in draw(st.lists(WINDOWS, unique=True, max_size=2))
    ]
    others = draw(st.lists(st.sampled_from([OTHER_FULL, RECURRENT]), unique=True))
    bounded = sliding or [RECURRENT]
    kinds = dict.fromkeys([FULL, *bounded, *others])
    layers = st.one_of(st.integers(1, 8), st.integers(1, 64))
    types = tuple(replace(kind, layers=draw(layers)) for kind in draw(st.permutations(list(kinds))))
    context = draw(st.one_of(st.integers(1, 8192), st.integers(1, 300_000)))
    return Geometry("random", "random", context, types)


@st.composite
def stages(draw: st.DrawFn, specs: dict[str, Any]) -> list[dict[str, Any]]:
    """The layers of two to four pipeline stages: each type's layers cut in order, anywhere."""
    count = draw(st.integers(2, 4))
    found: list[dict[str, Any]] = [{} for _ in range(count)]
    by_type: dict[str, list[str]] = {}
    for name in specs:
        by_type.setdefault(name.split(".layers.")[0], []).append(name)
    for names in by_type.values():
        cuts = draw(st.lists(st.integers(0, len(names)), min_size=count - 1, max_size=count - 1))
        bounds = [0, *sorted(cuts), len(names)]
        for stage, start, end in zip(found, bounds, bounds[1:], strict=False):
            stage.update({name: specs[name] for name in names[start:end]})
    return [stage for stage in found if stage]


@EXAMPLES
@given(geometries())
def test_layers_are_partitioned_by_type(geometry: Geometry) -> None:
    specs = planner.specs(geometry)
    groups = planner.after().get_kv_cache_groups(planner.config(geometry.context), dict(specs))
    names = [name for group in groups for name in group.layer_names]
    assert sorted(names) == sorted(specs)
    for group in groups:
        assert group.layer_names
        assert {specs[name] for name in group.layer_names} == {group.kv_cache_spec}


@EXAMPLES
@given(geometries())
def test_full_attention_pays_only_for_half_the_groups(geometry: Geometry) -> None:
    specs = planner.specs(geometry)
    config = planner.config(geometry.context)
    types = layer_types(specs)
    old, new = (
        cost(types, group_size(module.get_kv_cache_groups(config, dict(specs))), geometry.context)
        for module in (planner.before(), planner.after())
    )
    assert new.full_pages <= old.full_pages or 2 * new.groups <= old.groups


@EXAMPLES
@given(geometries())
def test_no_rule_dominates(geometry: Geometry) -> None:
    """Fewer bytes and groups are to be had only by padding full attention more than before."""
    types = layer_types(planner.specs(geometry))
    counts = [layers for layers, _ in types]
    full = [planner.grows(spec) for _, spec in types]
    config = planner.config(geometry.context)
    ours = cost(types, planner.after()._select_group_size(config, types), geometry.context)
    old = cost(types, stock(counts, full), geometry.context)
    for rule in (stock, *RIVALS.values()):
        rival = cost(types, rule(counts, full), geometry.context)
        if rival.dominates(ours):
            assert rival.full_pages > old.full_pages and 2 * rival.groups > old.groups


def _empty(groups: list[Any], workers: list[dict[str, Any]]) -> bool:
    """Whether a group has no layer on a stage that has layers of its type."""
    for worker in workers:
        here = {name.split(".layers.")[0] for name in worker}
        for group in groups:
            kind = group.layer_names[0].split(".layers.")[0]
            if kind in here and not set(group.layer_names) & worker.keys():
                return True
    return False


@EXAMPLES
@given(st.data())
def test_pipeline_ranks_agree(data: st.DataObject) -> None:
    geometry = data.draw(geometries())
    specs = planner.specs(geometry)
    workers = data.draw(stages(specs))
    config = planner.config(geometry.context, pipeline_stages=len(workers))
    merged = {name: spec for worker in workers for name, spec in worker.items()}
    old, new = (
        module.get_kv_cache_groups(config, dict(merged))
        for module in (planner.before(), planner.after())
    )
    assert not _empty(new, workers) or _empty(old, workers)

    page = next(iter(specs.values())).page_size_bytes
    memory = [2**20 * page * (1 + rank) for rank in range(len(workers))]
    ranks = planner.after().get_kv_cache_configs(config, workers, memory)
    assert len({rank.num_blocks for rank in ranks}) == 1
    for rank, worker in zip(ranks, workers, strict=True):
        assert [group.kv_cache_spec for group in rank.kv_cache_groups] == [
            group.kv_cache_spec for group in new
        ]
        held = [name for group in rank.kv_cache_groups for name in group.layer_names]
        assert sorted(held) == sorted(worker)
