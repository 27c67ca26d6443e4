"""The platform class; imported by vLLM alone, after `register` named it."""

from typing import TYPE_CHECKING

import torch
from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backends.registry import AttentionBackendEnum

from interpreted_platform import interpreter

if TYPE_CHECKING:
    from vllm.v1.attention.selector import AttentionSelectorConfig

# The architecture whose tile sizes the launchers choose here: the oldest one they tell apart.
CAPABILITY = (8, 0)
# Programs that share one request's context. They run one after the other here, so the release's 16
# would spend half of the time in programs without a token; two still merge their parts.
SEGMENTS = 2


class InterpretedPlatform(CpuPlatform):
    """The CPU platform, with the Triton or KIVI backend in the place of the CPU's own attention."""

    @classmethod
    def get_attn_backend_cls(
        cls,
        selected_backend: "AttentionBackendEnum",
        attn_selector_config: "AttentionSelectorConfig",
        num_heads: int | None = None,
    ) -> str:
        # Imported here: the backend's module needs the platform that is being defined.
        from vllm.v1.attention.backends import triton_attn

        triton_attn.NUM_PAR_SOFTMAX_SEGMENTS = SEGMENTS
        if attn_selector_config.kv_cache_dtype == "int4_kivi":
            return _checked(AttentionBackendEnum.KIVI, attn_selector_config)
        return AttentionBackendEnum.TRITON_ATTN.get_path()


def _checked(backend: AttentionBackendEnum, attn_selector_config: "AttentionSelectorConfig") -> str:
    """The backend's path, refused with its own reasons as on a GPU."""
    reasons = backend.get_class().validate_configuration(
        device_capability=DeviceCapability(*CAPABILITY), **attn_selector_config._asdict()
    )
    if reasons:
        raise ValueError(f"{backend.name} is not valid for this configuration: {reasons}")
    return backend.get_path()


def _device_capability(device: object = None) -> tuple[int, int]:
    """Stands in for torch's: the launcher of the plain cache's store asks it for a CPU tensor."""
    return CAPABILITY


torch.cuda.get_device_capability = _device_capability
interpreter.install()
