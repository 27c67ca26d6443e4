"""The sweep's candidates and choice, and the refusal without a GPU."""

import os
import subprocess
import sys

import pytest

from scripts.common import ROOT
from scripts.sweep_decode import best, candidates


@pytest.mark.parametrize("query_len", [1, 6])
def test_candidates_are_distinct_and_fit_a_multiprocessor(query_len: int) -> None:
    launches = [tuple(map(int, text.split(","))) for text in candidates(query_len)]
    assert len(set(launches)) == len(launches) > 10
    assert all(4 <= warps * programs <= 24 for _, warps, programs, _ in launches)


def test_a_launch_that_was_not_timed_is_not_chosen() -> None:
    fused = {"table": {"median_us": 30.0}, "16,1,12,1": {"median_us": 20.0}, "32,2,4,1": {}}
    assert best({"fa3_bf16_us": 40.0, "fused": fused}) == ("16,1,12,1", 0.5)


@pytest.mark.parametrize("module", ["bench_decode", "sweep_decode"])
def test_without_a_gpu_it_says_so(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"scripts.{module}"],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "needs an NVIDIA GPU" in done.stderr
