"""The GPU as NVML sees it: what it is, who uses it, how it is clocked. Initialises no CUDA."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from scripts.common import Failure

MAX_UTILISATION = 5  # percent, at the start
SAMPLES, SAMPLE_S = 5, 0.2
# NVML's figure looks back and is not low yet right after another run: looks, each of a second.
ROUNDS = 4

# Reasons that NVML gives for a clock below the highest, as far as they bear on a measurement.
SLOWDOWNS = {
    "SwPowerCap": "power limit",
    "HwSlowdown": "hardware slowdown",
    "HwThermalSlowdown": "hardware thermal slowdown",
    "SwThermalSlowdown": "software thermal slowdown",
    "HwPowerBrakeSlowdown": "power brake",
}


@dataclass(frozen=True)
class Gpu:
    """One GPU; `uuid` is the driver's, `index` NVML's."""

    index: int
    uuid: str
    name: str

    @property
    def folder(self) -> str:
        """Its folder under results/: "NVIDIA H200" is h200."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower().removeprefix("nvidia ")).strip("-")


@contextmanager
def nvml() -> Iterator[ModuleType | None]:
    """NVML, or None where there is no driver, or an environment that was built for a CPU."""
    try:
        import pynvml  # type: ignore[import-untyped,import-not-found]
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def visible(count: int = 1) -> list[Gpu]:
    """The first `count` GPUs that this process may use; none with DEVICE=cpu.

    Raises Failure if there are some, but fewer.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if os.environ.get("DEVICE") == "cpu" or named == "":
        return []
    with nvml() as library:
        if library is None:
            return []
        found = []
        for index in range(library.nvmlDeviceGetCount()):
            handle = library.nvmlDeviceGetHandleByIndex(index)
            uuid, name = (
                _text(read(handle))
                for read in (library.nvmlDeviceGetUUID, library.nvmlDeviceGetName)
            )
            found.append(Gpu(index, uuid, name))
    if named is not None:
        found = [gpu for word in named.split(",") for gpu in found if _is(gpu, word.strip())]
    if found and len(found) < count:
        raise Failure(f"this needs {count} GPUs and sees {len(found)}: see CUDA_VISIBLE_DEVICES")
    return found[:count]


def require_idle(gpus: list[Gpu]) -> None:
    """Raise Failure if another process is on one of the GPUs, or if it is busy."""
    with nvml() as library:
        if library is None:
            return
        for gpu in gpus:
            handle = library.nvmlDeviceGetHandleByIndex(gpu.index)
            others = sorted(_processes(library, handle) - {os.getpid()})
            if others:
                raise Failure(
                    f"another process is on {gpu.name} ({gpu.uuid}): {_who(others)}\n"
                    "it would share the bandwidth that is measured: end it, wait for it, or name "
                    "another GPU (CUDA_VISIBLE_DEVICES)"
                )
            busy = 100
            for _ in range(ROUNDS):
                busy = _busy(library, handle)
                if busy <= MAX_UTILISATION:
                    break
            if busy > MAX_UTILISATION:
                raise Failure(
                    f"{gpu.name} ({gpu.uuid}) is {busy} % busy, with no process that NVML shows "
                    f"here (at most {MAX_UTILISATION} % is idle)\n"
                    "look on the host with nvidia-smi"
                )


def describe(gpu: Gpu) -> dict[str, Any]:
    """Name, driver, memory, power and clock state, for a result; None where NVML can't tell."""
    with nvml() as library:
        if library is None:
            raise Failure("the NVIDIA driver has gone away: see nvidia-smi")
        handle = library.nvmlDeviceGetHandleByIndex(gpu.index)
        sm, memory = library.NVML_CLOCK_SM, library.NVML_CLOCK_MEM

        def ask(name: str, *arguments: Any) -> Any:
            try:
                return getattr(library, f"nvmlDeviceGet{name}")(handle, *arguments)
            except library.NVMLError:
                return None

        capability = ask("CudaComputeCapability")
        set_to, usual = (ask(f"{which}ApplicationsClock", sm) for which in ("", "Default"))
        power = ask("EnforcedPowerLimit")
        return {
            "name": gpu.name,
            "uuid": gpu.uuid,
            "capability": capability and capability[0] * 10 + capability[1],
            "driver": _text(library.nvmlSystemGetDriverVersion()),
            "memory_bytes": library.nvmlDeviceGetMemoryInfo(handle).total,
            "power_limit_w": power and power / 1000,
            "sm_clock_mhz": {"highest": ask("MaxClockInfo", sm), "applications": set_to},
            "memory_clock_mhz": ask("ClockInfo", memory),
            # NVML has no reader of `nvidia-smi -lgc`: application clocks are what it shows.
            "clocks_locked": None if None in (set_to, usual) else set_to != usual,
        }


def load(gpu: Gpu) -> dict[str, Any]:
    """The SM clock at this moment in MHz, and why it is not higher."""
    with nvml() as library:
        if library is None:
            return {}
        handle = library.nvmlDeviceGetHandleByIndex(gpu.index)
        try:
            clock = library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM)
            reasons = library.nvmlDeviceGetCurrentClocksEventReasons(handle)
        except library.NVMLError:
            return {}
        slow = [
            words
            for name, words in SLOWDOWNS.items()
            if reasons & getattr(library, f"nvmlClocksEventReason{name}")
        ]
        return {"sm_clock_mhz": clock, "slowdowns": slow}


def _busy(library: ModuleType, handle: Any) -> int:
    """The highest utilisation within a second, in percent."""
    busy = 0
    for _ in range(SAMPLES):
        busy = max(busy, library.nvmlDeviceGetUtilizationRates(handle).gpu)
        time.sleep(SAMPLE_S)
    return busy


def _processes(library: ModuleType, handle: Any) -> set[int]:
    found = []
    for kind in ("Compute", "Graphics"):
        try:
            found += getattr(library, f"nvmlDeviceGet{kind}RunningProcesses")(handle)
        except library.NVMLError:
            continue
    return {process.pid for process in found}


def _who(pids: list[int]) -> str:
    """Process numbers with their names, where this namespace has them."""
    words = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                words.append(f"{pid} ({file.read().strip()})")
        except OSError:
            words.append(str(pid))
    return ", ".join(words)


def _is(gpu: Gpu, word: str) -> bool:
    return gpu.uuid.startswith(word) if word.startswith("GPU-") else word == str(gpu.index)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
