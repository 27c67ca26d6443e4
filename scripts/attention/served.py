"""What serves a format: the device, the engine's backend, and why it would not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from scripts.attention.shapes import BLOCK_SIZE, Format, Geometry
from scripts.common import Failure


@dataclass(frozen=True)
class Device:
    """Where steps run. Interpreted kernels take float32; a GPU's take bfloat16."""

    name: str

    @property
    def on_gpu(self) -> bool:
        return self.name == "cuda"

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.on_gpu else torch.float32


def backend_of(form: Format) -> Any:
    """The engine's backend class that serves a format. Raises Failure if the tree has none."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    if form.backend not in AttentionBackendEnum.__members__:
        raise Failure(f"{form.title}: the tree in vllm/ has no backend {form.backend}")
    return AttentionBackendEnum[form.backend].get_class()


def why_unavailable(form: Format, geometry: Geometry, device: Device) -> str | None:
    """Why the engine would not serve the format on this device; None if it would."""
    if not device.on_gpu and form.backend == "FLASH_ATTN":
        return "FlashAttention needs a GPU"
    backend = backend_of(form)
    if not device.on_gpu:
        served = backend.supports_kv_cache_dtype(form.cache)
        return None if served else f"this release has no cache {form.cache}"
    from vllm.platforms import current_platform
    from vllm.v1.attention.backend import AttentionType

    reasons = backend.validate_configuration(
        head_size=geometry.head_size,
        dtype=device.dtype,
        kv_cache_dtype=form.cache,
        block_size=BLOCK_SIZE,
        use_mla=False,
        has_sink=False,
        use_sparse=False,
        use_mm_prefix=False,
        use_per_head_quant_scales=False,
        device_capability=current_platform.get_device_capability(),
        attn_type=AttentionType.DECODER,
    )
    return f"{form.backend}: {', '.join(reasons)}" if reasons else None
