"""The release's own planner, before and after patch 0001, run on a geometry. Needs `make build`."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from scripts.common import VLLM, Failure, git
from scripts.plan.geometry import Geometry, LayerType
from scripts.plan.rivals import RIVALS
from scripts.series.tree import base_of

SOURCE = "vllm/v1/core/kv_cache_utils.py"

# What the release takes without flags: chunks of 2,048 tokens, two of them in flight.
IN_FLIGHT_TOKENS = 2 * 2048
BLOCK_SIZE = 16

RULES = ("before", "after", *RIVALS)
DTYPES = ("bfloat16", "fp8", "int8_per_token_head", "int4_per_token_head", "int4_kivi")


class Unserved(Failure):
    """No cache of this format serves the model."""


@dataclass(frozen=True)
class Plan:
    """A model's cache groups and what they cost."""

    group_size: int
    groups: int
    padding: int
    """Padding layers, over all groups."""
    full_slots: int
    """Layers and padding in full-attention groups."""
    block_size: int
    """Tokens a block, of the full-attention layers."""
    bytes_per_token: float
    """Bytes by which a request grows with each token, once its windows are full."""
    intercept: float
    """Bytes that a request takes apart from that."""
    request_bytes: int
    """Bytes of a request at the context limit."""
    tokens: int
    """Tokens that the memory holds in one request."""
    engine_tokens: int
    """The release's own figure: requests at the context limit that fit, times that limit."""


@cache
def after() -> ModuleType:
    """The planner in vllm/, as it is now."""
    if str(VLLM) not in sys.path:
        sys.path.insert(0, str(VLLM))
    # Planning touches no device; the kernels' Python modules import without one only if told so.
    with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=""):
        try:
            module = importlib.import_module("vllm.v1.core.kv_cache_utils")
        except ImportError as problem:
            raise Failure(f"vllm/ can't be imported ({problem}): run make apply build") from problem
    # It warns of every padding layer, which is what the tables show.
    module.logger.setLevel(logging.ERROR)
    if not hasattr(module, "_select_group_size"):
        raise Failure("patch 0001 is not applied to vllm/: run make apply")
    return module


@cache
def before() -> ModuleType:
    """The same file as the base has it, loaded beside the patched one."""
    after()
    source = git("show", f"{base_of(VLLM)}:{SOURCE}", cwd=VLLM)
    module = ModuleType("vllm.v1.core.kv_cache_utils_before")
    sys.modules[module.__name__] = module
    exec(compile(source, f"{SOURCE} (base)", "exec"), module.__dict__)
    module.logger.setLevel(logging.ERROR)
    return module


def config(context: int, pipeline_stages: int = 1) -> Any:
    """As much of a VllmConfig as planning reads."""
    after()
    from vllm.v1.kv_cache_layout import KVCacheLayout

    return SimpleNamespace(
        cache_config=SimpleNamespace(
            mamba_cache_mode="none",
            num_gpu_blocks_override=None,
            prefix_cache_retention_interval=None,
            get_resolved_kv_cache_layout=lambda: KVCacheLayout.LBNHC,
        ),
        model_config=SimpleNamespace(max_model_len=context, original_max_model_len=context),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1,
            pipeline_parallel_size=pipeline_stages,
            tensor_parallel_size=1,
        ),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        attention_config=SimpleNamespace(hisparse_config=None),
        speculative_config=None,
        max_in_flight_tokens=IN_FLIGHT_TOKENS,
        num_prefill_lookahead_tokens=0,
    )


def specs(geometry: Geometry, dtype: str = "bfloat16", tp: int = 1) -> dict[str, Any]:
    """The cache spec of every layer on one tensor-parallel rank, as the engine makes it.

    Raises Unserved if the format's backend refuses a layer.
    """
    after()
    import torch
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.kv_cache_interface import (
        ChunkedLocalAttentionSpec,
        FullAttentionSpec,
        MambaSpec,
        SlidingWindowSpec,
        get_kv_quant_mode,
    )

    classes: dict[str, tuple[Any, str | None]] = {
        "full": (FullAttentionSpec, None),
        "sliding": (SlidingWindowSpec, "sliding_window"),
        "chunked": (ChunkedLocalAttentionSpec, "attention_chunk_size"),
    }

    kivi = dtype == "int4_kivi"
    backend = AttentionBackendEnum["KIVI" if kivi else "TRITON_ATTN"].get_class()

    def attention(layers: LayerType, block_size: int) -> Any:
        make, window = classes[layers.kind]
        spec = make(
            block_size=block_size,
            num_kv_heads=max(1, layers.kv_heads // tp),
            head_size=layers.head_size,
            head_size_v=layers.head_size_v,
            dtype=STR_DTYPE_TO_TORCH_DTYPE[dtype],
            kv_quant_mode=get_kv_quant_mode(dtype),
            **({window: layers.window} if window else {}),
        )
        try:
            return backend.customize_spec(spec)
        except ValueError as refused:
            raise Unserved(f"{geometry.title}: {refused}") from None

    def recurrent(layers: LayerType, page: int | None) -> Any:
        return MambaSpec(
            block_size=geometry.context,
            shapes=((layers.state // tp,),),
            dtypes=(torch.int8,),
            page_size_padded=page,
        )

    # Blocks of a hybrid model are as long as it takes for an attention page to hold a state.
    states = [layers.state // tp for layers in geometry.types if layers.kind == "recurrent"]
    attentions = [layers for layers in geometry.types if layers.kind != "recurrent"]
    block_size, page = BLOCK_SIZE, None
    if states and attentions:
        row = attention(attentions[0], BLOCK_SIZE).page_size_bytes
        block_size = BLOCK_SIZE * -(-max(states) // row)
        page = attention(attentions[0], block_size).page_size_bytes

    found = {}
    for number, layers in enumerate(geometry.types):
        spec = (
            recurrent(layers, page) if layers.kind == "recurrent" else attention(layers, block_size)
        )
        for layer in range(layers.layers):
            found[f"type.{number}.layers.{layer}.{layers.kind}"] = spec
    return found


def grouped(rule: str, context: int, layer_specs: dict[str, Any]) -> list[Any]:
    """The cache groups that a rule makes of the layers.

    rule: `before` and `after` the patch, or one of RIVALS, whose group size the patched planner is
    then made to take.
    """
    module = before() if rule == "before" else after()

    def forced(_: Any, layer_types: list[tuple[int, Any]]) -> int:
        counts = [count for count, _ in layer_types]
        return RIVALS[rule](counts, [grows(spec) for _, spec in layer_types])

    patched = mock.patch.object(module, "_select_group_size", forced)
    with patched if rule in RIVALS else nullcontext():
        return list(module.get_kv_cache_groups(config(context), dict(layer_specs)))


def plan(
    geometry: Geometry,
    memory: int,
    rule: str = "after",
    *,
    context: int | None = None,
    dtype: str = "bfloat16",
    tp: int = 1,
) -> Plan:
    """Plan a model's cache by a rule of `grouped` and measure the groups it makes.

    The slope and intercept come from the release's own count for a request of the context's length
    and of half of it. Raises Failure if the memory doesn't hold one request of a single block.
    """
    context = context or geometry.context
    return _measure(grouped(rule, context, specs(geometry, dtype, tp)), memory, context)


def grows(spec: Any) -> bool:
    """Whether a layer is full attention: its cache grows with the context."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    return isinstance(spec, FullAttentionSpec)


def _measure(groups: list[Any], memory: int, context: int) -> Plan:
    module = after()
    size = max(len(group.layer_names) for group in groups)
    full = [group for group in groups if grows(group.kv_cache_spec)]
    block_size = max((group.kv_cache_spec.block_size for group in full), default=BLOCK_SIZE)

    def request(tokens: int) -> int:
        return module._max_memory_usage_bytes_from_groups(config(tokens), groups)

    block = module._pool_bytes_per_block(groups)
    # Whole blocks, so that rounding doesn't enter the slope.
    long = max(2, context // block_size) * block_size
    short = max(1, context // block_size // 2) * block_size
    slope = (request(long) - request(short)) / (long - short)
    intercept = request(long) - slope * long
    usable = (memory // block - 1) * block  # the pool keeps one block back
    if usable < request(block_size):
        raise Failure(
            f"{memory} bytes don't hold one block of every group "
            f"({request(block_size) + block} bytes): give more MEMORY"
        )
    blocks = memory // block
    per_request = request(context) // block
    return Plan(
        group_size=size,
        groups=len(groups),
        padding=size * len(groups) - sum(len(group.layer_names) for group in groups),
        full_slots=size * len(full),
        block_size=block_size,
        bytes_per_token=slope,
        intercept=intercept,
        request_bytes=request(context),
        tokens=_longest(request, usable, context, slope),
        engine_tokens=int(blocks / per_request * context),
    )


def _longest(request: Callable[[int], int], usable: int, context: int, slope: float) -> int:
    """The longest request in `usable` bytes by the release's own count, past the context too."""
    if not slope:
        return context if request(context) <= usable else 0
    low, high = 1, context + int(usable / slope) + 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if request(middle) <= usable else (low, middle - 1)
    return low
