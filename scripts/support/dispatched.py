"""What the patched tree decides: asked of its own dispatch, launch table and compile tests.

Imports vllm, so the process has to be one that may interpret Triton kernels.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from unittest import mock

from scripts.support.measured import Step

DISPATCH = "vllm.v1.attention.ops.quant_kv.dispatch"
LAUNCH = "vllm.v1.attention.ops.quant_kv.launch"
COMPILE_TESTS = (
    "tests.kernels.attention.quant_kv.test_compile",
    "tests.kernels.attention.quant_kv.test_compile_kivi",
)
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


def dispatch() -> ModuleType:
    return importlib.import_module(DISPATCH)


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


def refusals() -> list[str]:
    """What keeps the unified kernel, in the dispatch's words: of a layer, then of a step."""
    why_layer, why_batch = dispatch().why_layer_not_fused, dispatch().why_batch_not_fused
    reasons = []
    for name, default in _switches(dispatch().LayerTraits):
        reasons.append(why_layer(_traits(**{name: not default})))
    reasons.append(why_layer(_traits(head_size_v=64)))
    reasons.append(why_layer(_traits(num_heads=3, num_kv_heads=2)))
    reasons.append(why_layer(_traits(head_size=max(_HEAD_SIZES))))
    planner = mock.Mock(max_query_len=1, max_num_reqs=1)
    usual = {"causal": True, "num_reqs": 1, "max_query_len": 1}
    for name, default in _switches(dispatch().BatchTraits):
        batch = dispatch().BatchTraits(**usual | {name: not usual.get(name, default)})
        reasons.append(why_batch(batch, planner))
    batch = dispatch().BatchTraits(**usual | {"max_query_len": 2})
    reasons.append(why_batch(batch, planner))
    return list(dict.fromkeys(reason for reason in reasons if reason))


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
