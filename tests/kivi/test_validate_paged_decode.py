"""scripts/validate_paged_decode.py passes, and notices a kernel that is a little off."""

import os
import subprocess
import sys

from scripts.common import ROOT

# One element of the context of one token is a hundredth too large.
OFF = """
import sys
import scripts.validate_paged_decode as script
from scripts.harness import device
device.choose(smoke=True)
from scripts.quality.formats import statements
tests = statements()
right = tests.run
def wrong(batch, kernel):
    output = right(batch, kernel)
    output[-1, -1, -1] *= 1.01
    return output
tests.run = wrong
sys.argv = ["validate_paged_decode", "--every", "70"]
script.main(script.run)
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )


def test_a_part_of_the_matrix_passes() -> None:
    done = python("-m", "scripts.validate_paged_decode", "--every", "24")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[-1] == "ALL PASS"
    assert len(lines) >= 3 and all(line.startswith("pass") for line in lines[:-1])


def test_a_kernel_that_is_off_fails() -> None:
    done = python("-c", OFF)
    assert done.returncode == 1, done.stdout + done.stderr[-3000:]
    assert "ALL PASS" not in done.stdout
    assert "UNEQUAL" in done.stdout and "cases differ" in done.stderr


def test_a_wrong_number_is_refused() -> None:
    done = python("-m", "scripts.validate_paged_decode", "--every", "0")
    assert done.returncode == 1
    assert "give a number from 1 on" in done.stderr
