"""The sweep's candidates and choice, and the refusal without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from scripts.common import ROOT
from scripts.sweep_decode import best, candidates, entries, overridden, variables


@pytest.mark.parametrize("query_len", [1, 6])
def test_candidates_are_distinct_and_fit_a_multiprocessor(query_len: int) -> None:
    launches = [tuple(map(int, text.split(","))) for text in candidates(query_len)]
    assert len(set(launches)) == len(launches) > 10
    assert all(4 <= warps * programs <= 24 for _, warps, programs, _ in launches)


def test_kivi_verifies_by_its_decode_kernel() -> None:
    assert candidates(6, "int4_kivi") == candidates(1)


def test_a_launch_is_what_the_engine_is_told() -> None:
    assert variables("table") == {}
    assert variables("16,4,2,1") == {
        "VLLM_QUANT_KV_TILE": "16",
        "VLLM_QUANT_KV_WARPS": "4",
        "VLLM_QUANT_KV_SEGMENTS": "2",
        "VLLM_QUANT_KV_STAGES": "1",
    }


def test_only_the_measured_steps_take_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner sizes its workspace for verification too, which may refuse the launch."""
    from vllm.v1.attention.ops.quant_kv.fused import FusedPlanner

    def launch(planner: Any, num_reqs: int, query_len: int) -> str | None:
        return os.environ.get("VLLM_QUANT_KV_WARPS")

    monkeypatch.setattr(FusedPlanner, "_launch", launch)
    planner: Any = object()
    with overridden("16,1,4,1", 1):
        assert FusedPlanner._launch(planner, 3, 1) == "1"
        assert FusedPlanner._launch(planner, 3, 6) is None
    assert FusedPlanner._launch(planner, 3, 1) is None


def cell(reference: float | None, key: str = "few", **launches: float | None) -> dict[str, Any]:
    """A shape's cell; a launch without a time was refused."""
    tried = {name: {"p50": p50} if p50 else {"refused": ""} for name, p50 in launches.items()}
    base = {"p50": reference} if reference else None
    return {"key": ["sm90", key], "reference": base, "launches": tried}


def test_a_launch_that_was_not_timed_is_not_chosen() -> None:
    assert best([cell(40.0, table=30.0, fast=20.0, refused=None)]) == ("fast", 0.5)
    assert best([cell(40.0, table=None)]) is None


def test_shapes_of_one_entry_choose_together() -> None:
    first = cell(10.0, table=10.0, a=5.0, b=8.0)
    second = cell(100.0, table=100.0, a=200.0, b=50.0)
    launch, mean = best([first, second]) or ("", 0)
    assert launch == "b" and mean == pytest.approx((0.8 * 0.5) ** 0.5)
    # Measured for one shape alone, it can't serve both.
    assert best([first, cell(1.0, table=1.0)]) == ("table", 1.0)


def test_without_a_reference_the_table_is_one() -> None:
    assert best([cell(None, table=30.0, fast=15.0)]) == ("fast", 0.5)


def test_entries_are_those_of_the_table() -> None:
    cells = {
        "x": cell(10.0, table=9.0, a=5.0),
        "y": cell(10.0, table=2.0, a=5.0, key="many"),
        "copy": {"bytes_per_s": 1.0},
    }
    assert entries(cells) == {("sm90", "few"): ("a", 0.5), ("sm90", "many"): ("table", 0.2)}


@pytest.mark.parametrize(
    "module", ["bench_decode", "sweep_decode", "bench_paged_decode", "bench_quant_vs_flash"]
)
def test_without_a_gpu_it_says_so(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"scripts.{module}"],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "needs an NVIDIA GPU" in done.stderr and "--smoke" in done.stderr
