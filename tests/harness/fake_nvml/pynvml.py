"""NVML as a test describes it: a JSON file that FAKE_NVML names. Without it: no driver.

{"gpus": [{"name": ..., "uuid": ..., "pids": [...], "busy": [percent, ...], "applications": MHz,
"reasons": bits}]}; "busy" is read one value a call, the last one for ever.
"""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
nvmlClocksEventReasonSwPowerCap = 4
nvmlClocksEventReasonHwSlowdown = 8
nvmlClocksEventReasonSwThermalSlowdown = 32
nvmlClocksEventReasonHwThermalSlowdown = 64
nvmlClocksEventReasonHwPowerBrakeSlowdown = 128
DEFAULT_CLOCK = 1980
_reads: dict[str, int] = {}


class NVMLError(Exception):
    pass


def _gpus() -> list[dict[str, Any]]:
    with open(os.environ["FAKE_NVML"]) as file:
        return json.load(file)["gpus"]


def nvmlInit() -> None:
    if "FAKE_NVML" not in os.environ:
        raise NVMLError("Driver Not Loaded")


def nvmlShutdown() -> None:
    pass


def nvmlDeviceGetCount() -> int:
    return len(_gpus())


def nvmlDeviceGetHandleByIndex(index: int) -> dict[str, Any]:
    return _gpus()[index]


def nvmlDeviceGetUUID(handle: dict[str, Any]) -> str:
    return handle["uuid"]


def nvmlDeviceGetName(handle: dict[str, Any]) -> bytes:
    return handle["name"].encode()  # older releases answer in bytes


def nvmlDeviceGetCudaComputeCapability(handle: dict[str, Any]) -> tuple[int, int]:
    return handle.get("capability", (9, 0))


def nvmlDeviceGetComputeRunningProcesses(handle: dict[str, Any]) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid) for pid in handle.get("pids", [])]


def nvmlDeviceGetGraphicsRunningProcesses(handle: dict[str, Any]) -> list[SimpleNamespace]:
    raise NVMLError("Not Supported")


def nvmlDeviceGetUtilizationRates(handle: dict[str, Any]) -> SimpleNamespace:
    values = handle.get("busy", [0])
    number = _reads[handle["uuid"]] = _reads.get(handle["uuid"], -1) + 1
    return SimpleNamespace(gpu=values[min(number, len(values) - 1)])


def nvmlDeviceGetMaxClockInfo(handle: dict[str, Any], kind: int) -> int:
    return DEFAULT_CLOCK


def nvmlDeviceGetClockInfo(handle: dict[str, Any], kind: int) -> int:
    return 1755 if kind == NVML_CLOCK_SM else 3201


def nvmlDeviceGetApplicationsClock(handle: dict[str, Any], kind: int) -> int:
    if "applications" not in handle:
        raise NVMLError("Not Supported")
    return handle["applications"]


def nvmlDeviceGetDefaultApplicationsClock(handle: dict[str, Any], kind: int) -> int:
    return DEFAULT_CLOCK


def nvmlDeviceGetEnforcedPowerLimit(handle: dict[str, Any]) -> int:
    return 700_000


def nvmlSystemGetDriverVersion() -> str:
    return "580.1"


def nvmlDeviceGetMemoryInfo(handle: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(total=150_000_000_000)


def nvmlDeviceGetCurrentClocksEventReasons(handle: dict[str, Any]) -> int:
    return handle.get("reasons", 0)
