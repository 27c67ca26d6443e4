"""What the patched tree decides: asked of its own dispatch, launch table and compile tests.

Imports vllm, so the process has to be one that may interpret Triton kernels.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from scripts.support.measured import Step

DISPATCH = "vllm.v1.attention.ops.quant_kv.dispatch"
PREFILL = "vllm.v1.attention.ops.quant_kv.prefill_dispatch"
LAUNCH = "vllm.v1.attention.ops.quant_kv.launch"
COMPILE_TESTS = (
    "tests.kernels.attention.quant_kv.test_compile",
    "tests.kernels.attention.quant_kv.test_compile_kivi",
)
# Each case of their matrices names a cache, a head size, a kernel and masks.
DECODE_TESTS = "tests.kernels.attention.quant_kv.test_fused_attention"
PREFILL_TESTS = "tests.kernels.attention.quant_kv.test_prefill"
# Options of their cases, and what a reader calls them.
_MASKS = {"window": "a sliding window", "sinks": "attention sinks", "softcap": "a soft cap"}
# Capabilities to ask for a family's name, and head sizes to ask for a refusal.
_CAPABILITIES = range(80, 130)
_HEAD_SIZES = range(16, 513, 16)
_GROUP = 1


@dataclass(frozen=True)
class Kernel:
    """A kernel of an architecture, up to so many query rows, for one head size."""

    cache: str
    family: str
    head_size: int
    name: str
    rows: int


@dataclass(frozen=True)
class Feature:
    """What a layer, a step or a run may have: do the series' decode and its prefill take it?"""

    words: str
    decode: bool
    prefill: bool


def dispatch() -> ModuleType:
    return importlib.import_module(DISPATCH)


def prefill_dispatch() -> ModuleType:
    return importlib.import_module(PREFILL)


def launch() -> ModuleType:
    return importlib.import_module(LAUNCH)


def families() -> dict[str, int | None]:
    """Architecture family to its first capability; the last is everything else (None)."""
    found: dict[str, int | None] = {}
    for capability in _CAPABILITIES:
        found.setdefault(launch().family(capability), capability)
    return found | {"other": None}


def caches() -> dict[str, str]:
    """kv_cache_dtype to the launch table's name, of each format that has kernels."""
    return {mode.name.lower(): name for mode, name in dispatch().FORMATS.items()}


def _traits(**changes: object) -> object:
    """A decoder layer that the dispatch takes, but for the changes."""
    mode = next(iter(dispatch().FORMATS))
    usual = {"kv_quant_mode": mode, "head_size": 128, "num_heads": 1, "num_kv_heads": 1}
    usual |= changes  # type: ignore[assignment]
    usual.setdefault("head_size_v", usual["head_size"])
    return dispatch().LayerTraits(**usual)


def head_sizes(cache: str) -> list[int]:
    """The head sizes that a format's kernels serve."""
    mode = next(mode for mode in dispatch().FORMATS if mode.name.lower() == cache)
    why = dispatch().why_layer_not_fused
    return [
        size for size in _HEAD_SIZES if why(_traits(kv_quant_mode=mode, head_size=size)) is None
    ]


def kernels() -> list[Kernel]:
    """Every kernel that the launch table gives, with the most query rows that it serves."""
    found = []
    most = launch().MAX_QUERY_TOKENS * 16
    for cache, form in caches().items():
        for family, capability in families().items():
            for size in head_sizes(cache):
                names: dict[str, int] = {}
                for rows in range(1, most + 1):
                    names[_name(capability, form, size, rows)] = rows
                found += [Kernel(cache, family, size, *item) for item in names.items()]
    return found


def _name(capability: int | None, form: str, size: int, rows: int, requests: int = 1) -> str:
    return launch().choose_launch(capability, form, size, rows, requests, True).kernel


def kernel_of(step: Step) -> tuple[str, str, int, str] | None:
    """(cache, family, head size, kernel) of a measured step; None if the series served none."""
    form = caches().get(step.cache)
    if form is None or step.rows > launch().MAX_QUERY_TOKENS * 16:
        return None
    name = _name(step.capability, form, step.head_size, step.rows, step.requests)
    return step.cache, launch().family(step.capability), step.head_size, name


def compiled() -> set[tuple[str, str, int, str]]:
    """(cache, family, head size, kernel) of each launch whose compilation the tests check."""
    found = set()
    names = {form: cache for cache, form in caches().items()}

    def noted(capability: int, form: str, size: int, rows: int, *rest: object) -> object:
        chosen = launch().choose_launch(capability, form, size, rows, *rest)
        found.add((names[form], launch().family(capability), size, chosen.kernel))
        return chosen

    for name in COMPILE_TESTS:
        tests = importlib.import_module(name)
        with mock.patch.object(tests, "choose_launch", noted):
            tests.variants()
    return found


def interpreted() -> dict[str, set[int]]:
    """cache to the head sizes that the tests run through the portable kernel on a CPU.

    The process has to see no GPU: the tests' matrix is another one there.
    """
    names = {form: cache for cache, form in caches().items()}
    found: dict[str, set[int]] = {}
    for case in importlib.import_module(DECODE_TESTS).MATRIX:
        if case["kernel"] == "portable":
            found.setdefault(names[case["kv_format"]], set()).add(case["head_size"])
    return found


def features() -> list[Feature]:
    """What decode and prefill take, and in the dispatch's words what keeps the unified kernel."""
    found = [*_caches_taken(), *_masks_tested(), *_asked_of_layers()]
    found += [*_asked_of_prefill(), *_asked_of_steps(), *_asked_of_settings()]
    return list({feature.words: feature for feature in found}.values())


def _feature(decode: str | None, prefill: str | None, words: str = "") -> Feature:
    """A feature by the reasons of both (None: it is taken); "prefill" is no reason to a reader."""
    words = words or (prefill if decode in (None, "prefill") else decode) or ""
    return Feature(words, decode is None, prefill is None)


def _caches_taken() -> Iterator[Feature]:
    for mode in dispatch().FORMATS:
        layer = _traits(kv_quant_mode=mode)
        yield _feature(_why_layer(layer), _why_prefill(layer), f"`{mode.name.lower()}`")


def _masks_tested() -> Iterator[Feature]:
    """What the tests run over every cache, by decode and by prefill; both ask no dispatch."""
    decode, prefill = (importlib.import_module(name) for name in (DECODE_TESTS, PREFILL_TESTS))
    by_decode = _options((case["kv_format"], decode.MASKS[case["mask"]]) for case in decode.MATRIX)
    by_prefill = _options((case["kv_format"], case) for case in prefill.FEATURES)
    for option, words in _MASKS.items():
        yield Feature(words, option in by_decode, option in by_prefill)


def _options(cases: Iterable[tuple[str, dict[str, Any]]]) -> set[str]:
    """The options that are on in a case of each cache."""
    by_cache: dict[str, set[str]] = {form: set() for form in caches().values()}
    for form, case in cases:
        by_cache[form] |= {option for option in _MASKS if case.get(option)}
    return set.intersection(*by_cache.values())


def _asked_of_layers() -> Iterator[Feature]:
    switches = _switches(dispatch().LayerTraits)
    changes: list[dict[str, Any]] = [{name: not default} for name, default in switches]
    changes += [{"head_size_v": 64}, {"num_heads": 3, "num_kv_heads": 2}]
    changes += [{"head_size": 72}, {"head_size": max(_HEAD_SIZES)}]
    for change in changes:
        layer = _traits(**change)
        yield _feature(_why_layer(layer), _why_prefill(layer))


def _asked_of_prefill() -> Iterator[Feature]:
    """What the decode's dispatch does not ask of a layer."""
    import torch

    layer, rows = _traits(), _prefill_traits().scratch.rows
    switches = _switches(prefill_dispatch().PrefillTraits)
    alone = ("has_sinks",)  # taken by itself, see the versions and types below
    changes: list[dict[str, Any]] = [
        {name: not default} for name, default in switches if name not in alone
    ]
    changes += [{"window": rows}, {"version": None}, {"dtype": torch.float32}]
    changes += [{"has_sinks": True, "version": 2}, {"has_sinks": True, "dtype": torch.float16}]
    for change in changes:
        yield _feature(_why_layer(layer), _why_prefill(layer, **change))


def _asked_of_steps() -> Iterator[Feature]:
    import torch

    most = launch().MAX_QUERY_TOKENS
    planner = mock.Mock(max_query_len=most, max_num_reqs=1)

    def decode(**changes: object) -> str | None:
        usual = {"causal": True, "num_reqs": 1, "max_query_len": 1}
        batch = dispatch().BatchTraits(**usual | changes)
        return dispatch().why_batch_not_fused(batch, planner)

    def prefill(has_rswa: bool = False, **changes: object) -> str | None:
        usual: dict[str, object] = {
            "causal": True,
            "mm_req_doc_ranges": None,
            "seq_lens_cpu_upper_bound": torch.tensor([100]),
            "query_start_loc_cpu": torch.tensor([0, 100]),
            "is_prefilling": None,
        }
        metadata = SimpleNamespace(**usual | changes)
        return prefill_dispatch().why_batch_not_prefill(metadata, 0, most, has_rswa)

    yield _feature(decode(causal=False), prefill(causal=False))
    yield _feature(decode(has_mm_prefix=True), prefill(mm_req_doc_ranges={0: []}))
    yield _feature(decode(has_rswa=True), prefill(has_rswa=True))
    yield _feature(decode(), prefill(seq_lens_cpu_upper_bound=None))
    behind = torch.tensor([0, 100, 101])
    yield _feature(decode(max_query_len=100), prefill(query_start_loc_cpu=behind))
    longer = _why_prefill(_traits(), max_decode_len=most + 1)
    yield _feature(decode(max_query_len=most + 1), longer)


def _asked_of_settings() -> Iterator[Feature]:
    """Each environment variable that either dispatch reads, at the value that it has not."""
    envs = importlib.import_module("vllm.envs")
    both = (dispatch().why_layer_not_fused, prefill_dispatch().why_not_prefill)
    names = [name for function in both for name in _variables(function)]
    layer = _traits(kv_quant_mode=list(dispatch().FORMATS)[-1])
    for name in dict.fromkeys(names):
        other = "0" if getattr(envs, name) else "1"
        with mock.patch.dict(os.environ, {name: other}):
            yield _feature(_why_layer(layer), _why_prefill(layer))


def _variables(function: Callable[..., object]) -> list[str]:
    return [name for name in function.__code__.co_names if name.startswith("VLLM_")]


def _why_layer(layer: object) -> str | None:
    return dispatch().why_layer_not_fused(layer)


def _prefill_traits(**changes: object) -> Any:
    """Traits of a BF16 model that FlashAttention 3 serves, but for the changes."""
    import torch

    module = prefill_dispatch()
    scratch = module.scratch_shape(1, 128, torch.bfloat16)
    usual = {"layer": _traits(), "dtype": torch.bfloat16, "version": 3, "scratch": scratch}
    return module.PrefillTraits(**usual | changes)


def _why_prefill(layer: object, **changes: object) -> str | None:
    return prefill_dispatch().why_not_prefill(_prefill_traits(layer=layer, **changes))


def _switches(traits: type) -> Iterable[tuple[str, bool]]:
    """The yes-or-no fields and their defaults (True without one)."""
    for field in dataclasses.fields(traits):
        if field.type in (bool, "bool"):
            missing = field.default is dataclasses.MISSING
            yield field.name, True if missing else bool(field.default)


def other_caches() -> list[str]:
    """Quantised formats of the release that have no kernel of the series."""
    known = dispatch().FORMATS
    return [mode.name.lower() for mode in type(next(iter(known))) if mode and mode not in known]
