"""The dense fallback: gather the context by the block table, dequantise it, attend over it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch.nn.functional import scaled_dot_product_attention

from scripts.attention.shapes import BLOCK_SIZE
from scripts.attention.step import Step

Rows = tuple[torch.Tensor, torch.Tensor]


def _plain(step: Step, pages: torch.Tensor, blocks: torch.Tensor) -> Rows:
    key, value = pages[blocks].transpose(1, 2).chunk(2, -1)
    return key, value


def _int8(step: Step, pages: torch.Tensor, blocks: torch.Tensor) -> Rows:
    from vllm.v1.attention.ops.quant_kv.layout import planar_views

    views = planar_views(pages)
    dtype = step.query.dtype
    key = views.key_cache[blocks].to(dtype) * views.k_scale[blocks].to(dtype)[..., None]
    value = views.value_cache[blocks].to(dtype) * views.v_scale[blocks].to(dtype)[..., None]
    return key, value


def _int4(step: Step, pages: torch.Tensor, blocks: torch.Tensor) -> Rows:
    from vllm.v1.attention.ops.quant_kv.layout import planar_views

    views = planar_views(pages)
    dtype = step.query.dtype
    pairs = (views.key_cache, views.k_scale), (views.value_cache, views.v_scale)
    key, value = (int4_rows(codes[blocks], words[blocks], dtype) for codes, words in pairs)
    return key, value


def int4_rows(codes: torch.Tensor, words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rows [..., head size] of an INT4 cache, in `dtype` as INT8's are.

    codes: uint8 [..., head size / 2]; words: float32 [...], scale and zero point. The format is
    stated in float64 by `dequantize` of quant_kv/reference.py.
    """
    word = words.contiguous().view(torch.int32)
    scale = (word & -256).view(torch.float32).to(dtype)
    zero_point = (word & 255).to(torch.uint8).view(torch.int8)
    levels = torch.cat([codes & 15, codes >> 4], -1).to(dtype) - zero_point.to(dtype)[..., None]
    return levels * scale[..., None] @ _unrotation(levels.shape[-1], codes.device, dtype)


@cache
def _unrotation(head_size: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """The matrix that rotates rows back; made once, for no graph can hold its making."""
    from vllm.v1.attention.ops.quant_kv.reference import rotation_matrix
    from vllm.v1.attention.ops.quant_kv.rotation import rotation_block

    # Powers of two: exact in every dtype.
    return (rotation_matrix(head_size, device) / rotation_block(head_size)).to(dtype)


# By kv_cache_dtype: K and V rows of blocks, [blocks, block size, KV heads, head size].
DEQUANTISERS: dict[str, Callable[[Step, torch.Tensor, torch.Tensor], Rows]] = {
    "auto": _plain,
    "int8_per_token_head": _int8,
    "int4_per_token_head": _int4,
}


def attend(step: Step) -> torch.Tensor:
    """Attention of every layer over its dequantised context, request by request.

    Returns the last layer's output, [tokens, heads, head size].
    """
    for pages in step.caches:
        for request in range(len(step.batch.seq_lens)):
            _attend_one(step, pages, request)
    return step.output


def _attend_one(step: Step, pages: torch.Tensor, request: int) -> None:
    length, count = step.batch.seq_lens[request], step.batch.query_lens[request]
    first = sum(step.batch.query_lens[:request])
    used = step.block_table[request, : -(-length // BLOCK_SIZE)].long()
    rows = DEQUANTISERS[step.format.cache](step, pages, used)
    key, value = (x.flatten(0, 1)[:length].transpose(0, 1)[None] for x in rows)
    queries = slice(first, first + count)
    query = step.query[queries].transpose(0, 1)[None]
    seen = None
    if count > 1:
        token = torch.arange(length, device=query.device)
        seen = token[None, :] <= token[length - count :, None]
    output = scaled_dot_product_attention(
        query, key, value, attn_mask=seen, scale=step.scale, enable_gqa=True
    )
    step.output[queries] = output[0].transpose(0, 1)


def checked(step: Step) -> torch.Tensor:
    """The checked rows of the fallback's output, float64."""
    step.output.fill_(float("nan"))
    return attend(step)[[row for row, _, _ in step.checked()]].double()
