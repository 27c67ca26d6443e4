"""An out-of-tree vLLM platform: the engine on a CPU, attention over interpreted Triton kernels.

`make build` registers `register` as a `vllm.platform_plugins` entry point, so the engine finds it
by itself; it only answers where `environment()` was set.  Nothing in vllm/ is changed for it.
"""

import os

ACTIVATE = "QUANT_KV_INTERPRETED"


def environment() -> dict[str, str]:
    """The variables a process needs, set before it imports torch or vllm, to run on this platform.

    `CUDA_VISIBLE_DEVICES` must be there and empty: only then does vLLM keep Triton without a
    driver.  One process holds the engine, so that its kernels are this process's.
    """
    return {
        ACTIVATE: "1",
        "TRITON_INTERPRET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def register() -> str | None:
    """Entry point: the platform's class where `environment()` asks for it, else None."""
    if os.environ.get(ACTIVATE) != "1":
        return None
    return "interpreted_platform.platform.InterpretedPlatform"
