"""Puts vLLM's own stand-in for FlashAttention in its place, in an engine over a CPU."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

# The stand-in lies with the series' upstream tests, which are no package of ours.
STAND_IN = "tests/kernels/attention/quant_kv/flash_stand_in.py"


class FlashHook:
    """Serves FlashAttention 3 from plain torch, with ranges of `range_tokens`, and counts calls.

    Attributes:
        causal: calls with a causal mask: chunks on their own keys, or windows.
        ranges: calls without a mask: cached ranges.
    """

    def __init__(self, range_tokens: int) -> None:
        import torch
        from vllm.v1.attention.backends import fa_utils
        from vllm.v1.attention.ops.quant_kv import flash, scratch

        import vllm

        spec = spec_from_file_location("flash_stand_in", Path(vllm.__file__).parents[1] / STAND_IN)
        assert spec is not None and spec.loader is not None
        self.stand_in = module_from_spec(spec)
        spec.loader.exec_module(self.stand_in)
        self.causal = self.ranges = 0
        fa_utils.flash_attn_varlen_func = self
        flash.flash_version = lambda *_: 3
        flash.FLASH_DTYPES = (torch.float32,)
        scratch.MAX_RANGE_TOKENS = range_tokens

    def __call__(self, **arguments: Any) -> Any:
        if arguments["causal"]:
            self.causal += 1
        else:
            self.ranges += 1
        return self.stand_in.flash_attn_varlen_func(**arguments)
