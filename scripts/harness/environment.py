"""The machine and the versions behind a result."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scripts.harness import gpu

PACKAGES = ("vllm", "torch", "triton", "transformers", "numpy", "scipy", "flashinfer-python")


def versions() -> dict[str, str]:
    """The installed versions of what a measurement depends on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """The processor and system, as far as they are told."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "cpu": f"{len(os.sched_getaffinity(0))} cores of {_processor()}",
    }


def record(gpus: list[gpu.Gpu]) -> dict[str, Any]:
    """What the result's JSON says of where it was measured."""
    return {
        "gpus": [gpu.describe(one) for one in gpus],
        "machine": machine(),
        "versions": versions(),
        "settings": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(("VLLM_", "TRITON_", "QUANT_KV_", "TORCHINDUCTOR_"))
            and not name.endswith(("_DIR", "_ROOT", "_TOKEN", "_KEY", "_CACHE"))
        },
    }


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
