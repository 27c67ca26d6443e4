"""The fused kernels under compute-sanitizer: no access out of bounds, no race in shared memory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.common import VLLM

CASES = "tests/kernels/attention/quant_kv"
ATTENTION = "test_fused_attention.py"
KIVI_STORE = "test_store_kivi.py"
# What is watched, by a part of its name. The references consist of many small kernels of torch's,
# which take minutes under the tools.
KERNELS = ("attend", "combine", "plan_segments", "store_kivi", "assign_slots")
FOUND = 9  # the exit status that says so
LIMIT_S = 900


# Each kernel and format, on a small ragged batch with padding rows, and the store with a search.
# Races: of the kernels whose warps share something.
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("tool", "file", "select"),
    [
        ("memcheck", ATTENTION, "test_ragged_batch_with_padding and int8-5"),
        ("memcheck", ATTENTION, "test_ragged_batch_with_padding and int4-5"),
        ("memcheck", ATTENTION, "test_ragged_batch_with_padding and int4_kivi-5"),
        ("memcheck", KIVI_STORE, "test_every_byte_of_a_pool"),
        ("racecheck", ATTENTION, "test_ragged_batch_with_padding and int8-5-verify_hopper"),
        ("racecheck", ATTENTION, "test_ragged_batch_with_padding and int4-5-verify_hopper"),
        ("racecheck", KIVI_STORE, "test_every_byte_of_a_pool"),
    ],
)
def test_nothing_is_found(tool: str, file: str, select: str) -> None:
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = run_under(tool, [*tests, f"{CASES}/{file}", "-k", select])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


@pytest.mark.gpu
def test_a_bad_kernel_is_found_by_its_name() -> None:
    """Else the cases above could watch nothing."""
    done = run_under("memcheck", [sys.executable, str(Path(__file__).with_name("bad_kernel.py"))])
    assert done.returncode == FOUND, done.stdout[-3000:] + done.stderr[-1000:]
    assert "attend_beyond_the_end" in done.stdout


def run_under(tool: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    """A command in the patched tree under one of compute-sanitizer's tools."""
    if not shutil.which("compute-sanitizer"):
        pytest.skip("compute-sanitizer isn't on PATH: it comes with the CUDA toolkit")
    watched = [word for name in KERNELS for word in ("--kernel-name", f"kns={name}")]
    return subprocess.run(
        ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND), *watched, *command],
        cwd=VLLM,
        # Without the cache every tensor is an allocation of its own, with bounds of its own.
        env=os.environ | {"PYTHONPATH": str(VLLM), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
