"""Cache formats as plain torch: what attention reads back of the rows that were stored.

The statements of the formats are the tree's own: the torch stores of its kernel tests, beside which
the kernels are tested, and INT4-KIVI's float64 reference. What stands here is there to compare
with: the release's INT4 rule, which the series replaces, and INT4-KIVI with K coded as V is.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from scripts.common import BASE_VERSION, VLLM, Failure

if TYPE_CHECKING:
    import torch

# Keys and values, [tokens, KV heads, head size] -> the same in float32 as attention reads them.
RoundTrip = Callable[["torch.Tensor", "torch.Tensor"], tuple["torch.Tensor", "torch.Tensor"]]
BLOCK = 16
PLAIN = ("auto", "float32")
RELEASE_INT4 = f"int4_per_token_head@{BASE_VERSION}"
KIVI = "int4_kivi"
KEY_PER_TOKEN = f"{KIVI}@key-per-token"  # of the same bits: 16 channels of a token share a scale


def statements() -> ModuleType:
    """The formats of the tree's kernel tests; raises Failure if the tree holds none."""
    folder = VLLM / "tests" / "kernels" / "attention"
    if not (folder / "quant_kv" / "utils.py").exists():
        raise Failure("vllm/ holds no torch statement of the series' formats: run `make apply`")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module("quant_kv.utils")


def round_trip(name: str, dtype: torch.dtype) -> RoundTrip:
    """What a cache format makes of rows, which reach it in `dtype`, the model's own.

    name: a kv_cache_dtype of the tree, "auto" (kept in dtype), "float32" (kept as they are), the
    INT4 of the release, or INT4-KIVI with K per token. Raises Failure for another one.
    """
    if name == "float32":
        return lambda key, value: (key, value)
    if name == "auto":
        return lambda key, value: (key.to(dtype).float(), value.to(dtype).float())
    if name == RELEASE_INT4:
        return lambda key, value: (_release_int4(key.to(dtype)), _release_int4(value.to(dtype)))
    if name in (KIVI, KEY_PER_TOKEN):
        return _kivi(name == KIVI, dtype)
    known = {form.mode.name.lower(): key for key, form in statements().FORMATS.items()}
    if name not in known:
        names = ", ".join([*PLAIN, *known, KIVI, RELEASE_INT4, KEY_PER_TOKEN])
        raise Failure(f"no statement of the cache format {name} in torch: there are {names}")
    return _stored(known[name], dtype)


def _stored(key: str, dtype: torch.dtype) -> RoundTrip:
    """Through a cache in the tree's own layout, and back by its reference."""
    import torch
    from vllm.v1.attention.ops.quant_kv.reference import dequantized_rows

    tests = statements()
    store = tests.FORMATS[key].store
    # INT8 is what the tree takes where no format is named.
    more = {} if key == "int8" else {"kv_format": key}

    def trip(key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, heads, size = key.shape
        blocks = -(-tokens // BLOCK)
        views = tests.planar_views(tests.make_cache(blocks, heads, BLOCK, size, **more))
        store(key.to(dtype), value.to(dtype), views, torch.arange(tokens))
        table = torch.arange(blocks)
        stored = (views.key_cache, views.k_scale), (views.value_cache, views.v_scale)
        found = [dequantized_rows(*pair, table, tokens, **more).float() for pair in stored]
        return found[0], found[1]

    return trip


def open_tokens(name: str) -> int:
    """Tokens of a group whose K is exact for the group's own queries; 0: none ever is."""
    return BLOCK if name in (KIVI, KEY_PER_TOKEN) else 0


def _kivi(per_channel: bool, dtype: torch.dtype) -> RoundTrip:
    """INT4-KIVI's codes; a last group that isn't whole keeps K as it came."""
    import torch
    from vllm.v1.attention.ops.quant_kv import kivi_reference as reference

    def by_token(rows: torch.Tensor) -> torch.Tensor:
        return reference.decode_value_token(*reference.encode_value_token(rows)).float()

    def by_channel(rows: torch.Tensor) -> torch.Tensor:
        groups = rows.unflatten(0, (-1, BLOCK)).transpose(1, 2)
        coded = reference.decode_key_group(*reference.encode_key_group(groups))
        return coded.transpose(1, 2).flatten(0, 1).float()

    def trip(key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        key, value = key.to(dtype), value.to(dtype)
        whole = len(key) // BLOCK * BLOCK
        sealed = (by_channel if per_channel else by_token)(key[:whole])
        return torch.cat([sealed, key[whole:].float()]), by_token(value)

    return trip


def _release_int4(rows: torch.Tensor) -> torch.Tensor:
    """The release's int4_per_token_head: what its reader makes of what its store has written.

    Codes 0..15; the zero point, clamped to 0..15, takes the scale's four lowest bits.
    """
    import torch

    rotation = _release_rotation(rows.shape[-1])
    rotated = (rows.float() @ rotation.T).to(rows.dtype).float()
    low, high = rotated.amin(-1, keepdim=True), rotated.amax(-1, keepdim=True)
    scale = ((high - low) / 15.0).clamp(min=1e-6)
    zero = _rounded(-low / scale).clamp(0, 15)
    codes = _rounded(rotated * (1.0 / scale) + zero).clamp(0, 15)
    kept = (scale.view(torch.int32) & -16).view(torch.float32)
    return (codes - zero) * kept @ rotation / rows.shape[-1]


@cache
def _release_rotation(size: int) -> torch.Tensor:
    """Hadamard matrix times fixed signs, as the release's single_rht applies it to columns."""
    import torch
    from scipy.linalg import hadamard  # type: ignore[import-untyped]

    coins = torch.bernoulli(
        torch.full((size,), 0.5), generator=torch.Generator().manual_seed(0x9E3779B9)
    )
    return torch.tensor(hadamard(size), dtype=torch.float32) * (2.0 * coins - 1.0)


def _rounded(x: torch.Tensor) -> torch.Tensor:
    """Half away from zero."""
    return x.sign() * (x.abs() + 0.5).floor()
