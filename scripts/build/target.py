"""What is built: the device, and the lock files that belong to it."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from scripts.common import Failure

HERE = Path(__file__).parent
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Target:
    """One device's lock files: `packages` for pip, `engine` for the wheel with the binaries."""

    device: str

    @property
    def packages(self) -> Path:
        return HERE / f"{self.device}.lock"

    @property
    def engine(self) -> Path:
        return HERE / f"engine-{self.device}.lock"


def detect() -> Target:
    """DEVICE from the environment; else cuda where an NVIDIA driver is present, cpu elsewhere."""
    device = os.environ.get("DEVICE", "")
    if not device:
        driver = shutil.which("nvidia-smi") or Path("/proc/driver/nvidia/version").exists()
        device = "cuda" if driver else "cpu"
    if device not in DEVICES:
        raise Failure(f"DEVICE={device} is unknown: use DEVICE={' or DEVICE='.join(DEVICES)}")
    return Target(device)
