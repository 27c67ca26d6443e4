"""The fused kernels under compute-sanitizer: no access out of bounds, no race in shared memory."""

import os
import shutil
import subprocess
import sys

import pytest

from scripts.common import VLLM

CASES = "tests/kernels/attention/quant_kv/test_fused_attention.py"
LIMIT_S = 900


# Each kernel and format, on a small ragged batch with padding rows. Races: of the kernel whose
# warps share their operands by asynchronous copies. INT4-KIVI takes minutes: its reference consists
# of many small kernels, which are watched, too.
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("tool", "case"),
    [
        ("memcheck", "int8-5"),
        ("memcheck", "int4-5"),
        ("memcheck", "int4_kivi-5"),
        ("racecheck", "int8-5-verify_hopper"),
        ("racecheck", "int4-5-verify_hopper"),
    ],
)
def test_nothing_is_found(tool: str, case: str) -> None:
    select = f"test_ragged_batch_with_padding and {case}"
    if not shutil.which("compute-sanitizer"):
        pytest.skip("compute-sanitizer isn't on PATH: it comes with the CUDA toolkit")
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
        + [*pytest_command, CASES, "-k", select],
        cwd=VLLM,
        # Without the cache every tensor is an allocation of its own, with bounds of its own.
        env=os.environ | {"PYTHONPATH": str(VLLM), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
