"""Every kernel bench end to end, in tiny shapes over interpreted kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.attention.shapes import formats
from scripts.common import ROOT

SCRIPTS = ("bench_paged_decode", "bench_quant_vs_flash", "bench_decode", "sweep_decode", "capacity")
HOST = Path(__file__).with_name("smoke_host.py")
# Relative error of dequantised rows, by the dtype that they are made in.
BOUNDS = {"float32": 1e-6, "bfloat16": 1e-2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of all scripts, and what the gate said of a spoilt cache."""
    made = tmp_path_factory.mktemp("smoke")
    done = subprocess.run(
        [sys.executable, str(HOST), str(made), *SCRIPTS, "bench_paged_decode:int4"],
        cwd=ROOT,
        env=os.environ | {"DEVICE": "cpu", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return made


def cells(folder: Path, script: str) -> dict[str, Any]:
    return json.loads((folder / f"{script}.json").read_text())["cells"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_smoke_result_says_that_it_is_one(folder: Path, script: str) -> None:
    result = json.loads((folder / f"{script}.json").read_text())
    assert result["smoke"] is True and result["name"] == script
    assert result["environment"]["gpus"] == []


def test_every_format_is_read_and_stored_or_named_unavailable(folder: Path) -> None:
    found = [cell for cell in cells(folder, "bench_quant_vs_flash").values() if "format" in cell]
    assert {cell["kind"] for cell in found} == {"decode", "verify", "prefill"}
    assert {cell["format"] for cell in found} == set(formats())
    for cell in found:
        if formats()[cell["format"]].backend == "FLASH_ATTN":
            assert cell["unavailable"] == "FlashAttention needs a GPU"
            continue
        assert 0 < cell["errors"]["error"] <= formats()[cell["format"]].bound
        for part in ("read", "store"):
            times = cell[part]
            assert 0 < times["p20"] <= times["p50"] <= times["p80"]
            rate = times["bytes"] / times["p50"] * 1e6
            assert times["tb_per_s"] == pytest.approx(rate / 1e12)
            # At the copy's own speed the step would take its floor.
            assert times["fraction_of_copy"] == pytest.approx(times["floor_us"] / times["p50"])


def test_a_format_takes_the_bytes_of_its_layout(folder: Path) -> None:
    found = cells(folder, "bench_quant_vs_flash")
    heads, size, scale = 2, 32, 4
    for form, row in (
        ("triton-bf16", 4 * size),  # float32 on a CPU
        ("int8", size + scale),
        ("int4-stock", size // 2 + scale),
        ("int4_kivi", size // 2 + size // 16),
    ):
        cell = found[f"tiny/q1s40/{form}"]
        assert cell["bytes_per_token"] == 2 * heads * row
        assert cell["read"]["bytes"] == 40 * cell["bytes_per_token"]
        assert cell["store"]["bytes"] == cell["bytes_per_token"]


def test_what_is_launched_once_a_step_is_told_apart(folder: Path) -> None:
    found = cells(folder, "bench_quant_vs_flash")
    told = {cell["format"] for cell in found.values() if "once" in cell}
    assert told == {"int4_kivi", "int4_kivi-gather"}
    assert found["tiny/q1s40/int4_kivi"]["errors"]["disagreement"] < 1e-5


@pytest.mark.parametrize(("form", "file"), [("int8", ""), ("int4", "-int4")])
def test_series_stock_and_fallback_are_compared_on_equal_terms(
    folder: Path, form: str, file: str
) -> None:
    found = cells(folder, f"bench_paged_decode{file}")
    variants = (form, f"{form}-stock", f"{form}-dense")
    shapes = {(cell["batch"]) for cell in found.values() if "batch" in cell}
    assert shapes == {"q1s40", "2q3s33"}
    for spec in shapes:
        errors = [found[f"tiny/{spec}/{variant}"]["errors"] for variant in variants]
        assert errors[0]["error"] == pytest.approx(errors[1]["error"], rel=1e-2)
        assert errors[0]["error"] == pytest.approx(errors[2]["error"], rel=1e-2)
        assert all(found[f"tiny/{spec}/{variant}"]["read"]["p50"] > 0 for variant in variants)
    assert found[f"tiny/q1s40/{form}"]["errors"]["disagreement"] < 1e-5


def test_the_fallback_reads_the_rows_that_the_format_states(folder: Path) -> None:
    errors = json.loads((folder / "dense.json").read_text())
    assert set(errors) == {f"{form} {dtype}" for form in ("int8", "int4") for dtype in BOUNDS}
    assert all(error < BOUNDS[name.split()[1]] for name, error in errors.items()), errors


def test_the_sweep_times_its_candidates_and_names_the_tables_entry(folder: Path) -> None:
    result = json.loads((folder / "sweep_decode.json").read_text())
    for cell in result["cells"].values():
        timed = [name for name, entry in cell["launches"].items() if "p50" in entry]
        assert "table" in timed and len(cell["launches"]) == 3
    (entry,) = result["summary"]["entries"]
    assert entry[:5] == ["sm80", "int8", 32, 8, "few"] and entry[5] in cell["launches"]


def test_capacity_takes_the_engines_own_figures(folder: Path) -> None:
    (cell,) = cells(folder, "capacity").values()
    assert cell["model"] == "qwen3.6-27b" and cell["memory"] == 12 << 30
    for plan in cell["plans"].values():
        assert plan["requests"] == pytest.approx(plan["engine_tokens"] / cell["context"], abs=1e-3)
        assert plan["tokens"] * plan["bytes_per_token"] <= cell["memory"]


def test_no_time_is_printed_of_a_kernel_that_is_wrong(folder: Path) -> None:
    said = (folder / "gate.txt").read_text()
    assert "series, INT8" in said and "not timed: the kernel is wrong" in said


def test_verification_has_a_grid_of_its_own(folder: Path) -> None:
    """Programs without a segment cost time: a drafter must not give every grid decode's size."""
    grid = json.loads((folder / "grid.json").read_text())
    assert grid["launched"] == grid["wanted"] and not grid["fixed"]


def test_on_a_gpu_the_engine_decides_what_is_served(folder: Path) -> None:
    reasons = json.loads((folder / "formats.json").read_text())
    assert reasons["9/int8"] is None and reasons["9/fa-bf16"] is None
    assert reasons["6/fa-bf16"] == "FLASH_ATTN: compute capability not supported"
    # No card is asked here, so none takes an FP8 cache.
    assert "kv_cache_dtype not supported" in reasons["9/fa-fp8"]
