"""One attention step through the engine's own layer, backend and metadata builder.

So a format's store, page layout, launch geometry and dispatch are those that serve requests, also
of formats and patches to come; nothing of a kernel's calling convention is repeated here.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from scripts.attention import config
from scripts.attention.served import Device, backend_of
from scripts.attention.shapes import BLOCK_SIZE, Batch, Format, Geometry
from scripts.harness import timing

CHUNK = 8192  # tokens of a request stored at once: whole groups, of formats that have them
CHECKED_REQUESTS, CHECKED_ROWS = 8, 8


def release() -> None:
    """Free what earlier steps held: a layer and its configuration refer to each other."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Step:
    """The tensors of a batch in one format, and its store and attention.

    Attributes:
        layers: how many layers a call runs: their caches exceed the L2 together.
        bytes_per_token: of one layer's cache, scales and padding counted.
        cache_bytes: what one layer reads in a step.
        flash_version: of FlashAttention, None for other backends.
        caches: of each layer, [blocks, KV heads, block size, content].

    """

    def __init__(self, geometry: Geometry, batch: Batch, form: Format, device: Device) -> None:
        self.geometry, self.batch, self.format, self.device = geometry, batch, form, device
        self.config = config.make(geometry, batch, form, device)
        torch.manual_seed(0)
        total = sum(batch.seq_lens)
        row = 2 * geometry.num_kv_heads * geometry.head_size * device.dtype.itemsize
        self.layers = timing.layers(total * row) if device.on_gpu else 1
        self._requests()
        with self._current():
            self._make_layers()
            self._make_cache()
            self._store_context()
            self.plan()
            self.store()

    def plan(self) -> None:
        """Build the step's metadata anew, as after a change of launch overrides."""
        with self._current():
            self._builder = self._make_builder()
            common = self._common()
            self.metadata = self._builder.build(common_prefix_len=0, common_attn_metadata=common)

    def store(self) -> None:
        """Store the query tokens' K and V, in every layer."""
        for layer, pages in zip(self._modules, self.caches, strict=True):
            layer.impl.do_kv_cache_update(
                layer, self.new_key, self.new_value, pages, self.new_slots
            )

    def once(self) -> Callable[[], None] | None:
        """What the builder launches once a step for the stores of all layers; None: nothing."""
        assign = getattr(self._builder, "_assign", None)
        return partial(assign, self.metadata) if assign else None

    def attend(self) -> torch.Tensor:
        """Attention of every layer; returns the last output [tokens, heads, head size]."""
        for layer, pages in zip(self._modules, self.caches, strict=True):
            layer.impl.forward(
                layer,
                self.query,
                self.new_key,
                self.new_value,
                pages,
                self.metadata,
                output=self.output,
            )
        return self.output

    def checked(self) -> list[tuple[int, int, int]]:
        """Query rows to check: row, request, its position in the request."""
        found = []
        starts = [0, *itertools.accumulate(self.batch.query_lens)]
        count = len(self.batch.query_lens)
        for request in _spread(count, CHECKED_REQUESTS):
            queries, length = self.batch.query_lens[request], self.batch.seq_lens[request]
            for offset in _spread(queries, CHECKED_ROWS):
                found.append((starts[request] + offset, request, length - queries + offset))
        return found

    def expected(self) -> torch.Tensor:
        """Float64 attention of the checked rows over K and V as they were before the store."""
        first = [0, *itertools.accumulate(self.batch.seq_lens)]
        rows = []
        heads, size = self.geometry.num_kv_heads, self.geometry.head_size
        for row, request, position in self.checked():
            seen = slice(first[request], first[request] + position + 1)
            query = self.query_exact[row].double().view(heads, -1, size)
            score = torch.einsum("hgd,khd->hgk", query, self.key[seen].double())
            weight = torch.softmax(score * self.scale, -1)
            rows.append(torch.einsum("hgk,khd->hgd", weight, self.value[seen].double()))
        return torch.stack(rows).flatten(1, 2)

    def actual(self) -> torch.Tensor:
        """The checked rows of the output, which is filled with NaN first; float64."""
        self.output.fill_(float("nan"))
        output = self.attend()
        return output[[row for row, _, _ in self.checked()]].double()

    # ------------------------------------------------------------------

    def _requests(self) -> None:
        geometry, batch, device = self.geometry, self.batch, self.device
        self._torch = torch.device(device.name)
        self.scale = geometry.head_size**-0.5
        counts = [-(-length // BLOCK_SIZE) for length in batch.seq_lens]
        # Block 0 is the engine's null block; the others are shuffled, as in a used pool.
        order = (torch.randperm(sum(counts)) + 1).to(torch.int32)
        self.num_blocks = sum(counts) + 1
        table = torch.zeros(len(counts), max(counts), dtype=torch.int32)
        slots, new, total = [], [], 0
        for request, (first, count) in enumerate(zip(_starts(counts), counts, strict=True)):
            table[request, :count] = order[first : first + count]
            length, queries = batch.seq_lens[request], batch.query_lens[request]
            token = torch.arange(length)
            slots.append(
                table[request].long()[token // BLOCK_SIZE] * BLOCK_SIZE + token % BLOCK_SIZE
            )
            new.append(torch.arange(total + length - queries, total + length))
            total += length
        self.block_table = table.to(self._torch)
        self.slots = torch.cat(slots).to(self._torch)

        def randn(tokens: int, heads: int) -> torch.Tensor:
            shape = (tokens, heads, geometry.head_size)
            return torch.randn(shape, device=self._torch, dtype=device.dtype)

        tokens = sum(batch.query_lens)
        self.key, self.value = (randn(total, geometry.num_kv_heads) for _ in "kv")
        rows = torch.cat(new).to(self._torch)
        self.new_key, self.new_value = self.key[rows], self.value[rows]
        self.new_slots = self.slots[rows]
        self.query_exact = randn(tokens, geometry.num_heads)
        self.output = torch.empty_like(self.query_exact)

    def _make_layers(self) -> None:
        from vllm.model_executor.layers.attention import Attention

        geometry = self.geometry
        self._backend = backend_of(self.format)
        self._modules = [
            Attention(
                geometry.num_heads,
                geometry.head_size,
                self.scale,
                num_kv_heads=geometry.num_kv_heads,
                cache_config=self.config.cache_config,
                prefix=f"layers.{number}.attn",
                attn_backend=self._backend,
            ).to(self._torch)
            for number in range(self.layers)
        ]
        spec = self._modules[0].get_kv_cache_spec(self.config)
        self.spec = self._backend.customize_spec(spec)
        self.bytes_per_token = self.spec.page_size_bytes / self.spec.block_size
        self.cache_bytes = int(sum(self.batch.seq_lens) * self.bytes_per_token)
        impl = self._modules[0].impl
        self.flash_version = getattr(impl, "vllm_flash_attn_version", None)
        takes_fp8 = getattr(impl, "supports_quant_query_input", False)
        self.query = self.query_exact
        if self.format.cache.startswith("fp8") and takes_fp8:
            self.query = self.query_exact.to(torch.float8_e4m3fn)

    def _make_cache(self) -> None:
        from vllm.v1.attention.backends.utils import (
            get_supported_kv_cache_layouts,
            resolve_kv_cache_layout,
        )
        from vllm.v1.kv_cache_interface import (
            KVCacheTensor,
            compute_layer_kv_cache_shape_bytes,
            compute_layout_strides,
            create_kv_cache_views,
        )

        supported = get_supported_kv_cache_layouts([self._backend])
        layout = resolve_kv_cache_layout(self.config, [[one.name for one in supported]])
        shape = compute_layer_kv_cache_shape_bytes(self.spec, self.num_blocks)
        size = prod(shape) * self.layers
        strides = compute_layout_strides(self.spec, self.num_blocks, self.layers, layout)
        tensor = KVCacheTensor(
            size=size,
            layers=[layer.layer_name for layer in self._modules],
            layer_stride=strides[0],
            block_stride=strides[1],
        )
        # Bytes that no store writes would show as NaN or as huge codes.
        raw = torch.full((size,), -1, dtype=torch.int8, device=self._torch)
        self.caches = create_kv_cache_views(raw, self.spec, self.num_blocks, layout, tensor)
        for layer, pages in zip(self._modules, self.caches, strict=True):
            layer.kv_cache = pages

    def _make_builder(self) -> Any:
        names = [layer.layer_name for layer in self._modules]
        return self._backend.get_builder_cls()(self.spec, names, self.config, self._torch)

    def _store_context(self) -> None:
        """What the requests hold before the step's own tokens, as if it had been their prompts."""
        lengths = zip(self.batch.seq_lens, self.batch.query_lens, strict=True)
        counts = [length - queries for length, queries in lengths]
        if assign := getattr(self._make_builder(), "_assign", None):
            prompts = SimpleNamespace(
                seq_lens=self._int32(counts),
                query_start_loc=self._int32([0, *itertools.accumulate(counts)]),
                block_table=self.block_table,
                common=SimpleNamespace(num_reqs=len(counts)),
            )
            assign(prompts)
        for start, count in zip(_starts(list(self.batch.seq_lens)), counts, strict=True):
            for first in range(start, start + count, CHUNK):
                part = slice(first, min(first + CHUNK, start + count))
                rows = self.key[part], self.value[part]
                for layer, pages in zip(self._modules, self.caches, strict=True):
                    layer.impl.do_kv_cache_update(layer, *rows, pages, self.slots[part])

    def _int32(self, numbers: list[int]) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int32, device=self._torch)

    def _common(self) -> Any:
        from vllm.v1.attention.backend import CommonAttentionMetadata

        starts = torch.tensor([0, *itertools.accumulate(self.batch.query_lens)], dtype=torch.int32)
        # As the engine says it: the host knows the lengths, and a chunk is no verification.
        prefilling = torch.full((len(self.batch.seq_lens),), self.batch.kind == "prefill")
        return CommonAttentionMetadata(
            query_start_loc=starts.to(self._torch),
            query_start_loc_cpu=starts,
            seq_lens=torch.tensor(self.batch.seq_lens, dtype=torch.int32, device=self._torch),
            num_reqs=len(self.batch.seq_lens),
            num_actual_tokens=sum(self.batch.query_lens),
            max_query_len=max(self.batch.query_lens),
            max_seq_len=max(self.batch.seq_lens),
            block_table_tensor=self.block_table,
            slot_mapping=self.new_slots,
            causal=True,
            is_prefilling=prefilling,
            seq_lens_cpu_upper_bound=torch.tensor(self.batch.seq_lens, dtype=torch.int32),
        )

    @contextmanager
    def _current(self) -> Iterator[None]:
        """The format's environment and configuration, as a worker has them."""
        from vllm.config import set_current_vllm_config

        fused = str(int(self.format.fused))
        with (
            mock.patch.dict(os.environ, VLLM_QUANT_KV_FUSED=fused, VLLM_QUANT_KV_PREFILL=fused),
            set_current_vllm_config(self.config),
        ):
            yield


def _starts(counts: list[int]) -> list[int]:
    return [0, *itertools.accumulate(counts)][:-1]


def _spread(count: int, most: int) -> list[int]:
    """At most `most` of 0 .. count - 1, evenly, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(index * (count - 1) / (most - 1)) for index in range(most)})
