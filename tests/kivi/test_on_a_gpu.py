"""The validations in full, by the GPU's own kernels."""

import subprocess
import sys

import pytest

from scripts.common import ROOT


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("script", "last"),
    [("validate_store_equiv", "STORE BIT-IDENTICAL"), ("validate_paged_decode", "ALL PASS")],
)
def test_everything_passes(script: str, last: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"scripts.{script}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == last
