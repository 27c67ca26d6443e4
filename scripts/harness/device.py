"""Where a script runs: on the GPU, or in --smoke on a CPU over interpreted kernels."""

from __future__ import annotations

import os
import sys

from scripts.common import Failure
from scripts.harness import gpu


def choose(smoke: bool, gpus: int = 1) -> list[gpu.Gpu]:
    """The GPUs to measure on; none in a smoke run without one, which then interprets kernels.

    Call it before anything imports torch. Raises Failure without a GPU unless smoke.
    """
    # The engine's notes would run through the progress bar.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    found = gpu.visible(gpus)
    if found:
        return found
    if not smoke:
        raise Failure(
            "this times kernels: it needs an NVIDIA GPU, its driver, and an environment for it "
            "(DEVICE=cuda make build)\n--smoke checks on a CPU that the script works"
        )
    interpret()
    return []


def interpret() -> None:
    """Let this process run Triton kernels interpreted. Raises Failure after torch's import."""
    if "torch" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise Failure("torch was imported before the kernels could be set to run interpreted")
    from interpreted_platform import environment

    os.environ.update(environment() | {"OMP_NUM_THREADS": "1"})
