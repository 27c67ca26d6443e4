"""Results as the scripts write them, small and made up: for the renderer, not for any claim."""

from __future__ import annotations

from typing import Any

GPU = {
    "name": "NVIDIA H200",
    "uuid": "GPU-aaaa",
    "driver": "580.1",
    "clocks_locked": True,
    "sm_clock_mhz": {"highest": 1980, "applications": 1410},
}


def result(name: str, cells: dict[str, Any], commit: str, **more: Any) -> dict[str, Any]:
    """A result of a script on one GPU."""
    return {
        "schema": 1,
        "name": name,
        "date": "2026-11-30T10:00:00+00:00",
        "smoke": False,
        "dirty": [],
        "series": {"commit": commit, "patches": []},
        "environment": {
            "gpus": [GPU],
            "machine": {"cpu": "16 cores of a CPU"},
            "versions": {"vllm": "0.31.0", "torch": "2.13.0", "triton": "3.7.1"},
            "load": {"sm_clock_mhz": [1395, 1410], "slowdowns": ["power limit"]},
        },
        "summary": {},
        "cells": cells,
        **more,
    }


def kernel_cells() -> dict[str, Any]:
    """Decode and verify of two formats at two contexts, and a format that was not available."""
    cells: dict[str, Any] = {"copy": {"bytes_per_s": 4e12}}
    for form, row, slow in (("fa-bf16", 4096, 1.5), ("int8", 2080, 1.2)):
        for kind, queries in (("decode", 1), ("verify", 6)):
            for thousands in (4, 32):
                size = row * thousands * 1024
                floor = size / 4e12 * 1e6
                median = slow * queries**0.5 * floor
                times = {
                    "p20": 0.9 * median,
                    "p50": median,
                    "p80": 1.1 * median,
                    "n": 10,
                    "bytes": size,
                    "tb_per_s": size / median / 1e6,
                    "fraction_of_copy": floor / median,
                    "floor_us": floor,
                }
                spec = f"q{queries}s{thousands}k"
                cells[f"qwen3.6-27b/{spec}/{form}"] = {
                    "geometry": "qwen3.6-27b",
                    "batch": spec,
                    "kind": kind,
                    "requests": 1,
                    "context": thousands * 1024,
                    "format": form,
                    "read": times,
                    "store": times,
                }
    cells["qwen3.6-27b/q1s4k/fa-fp8"] = cells["qwen3.6-27b/q1s4k/int8"] | {
        "format": "fa-fp8",
        "read": None,
        "store": None,
        "unavailable": "no FP8 here",
    }
    return cells


def plan(tokens: int) -> dict[str, Any]:
    return {"tokens": tokens, "requests": tokens / 1000}


def all_of_them(commit: str) -> dict[str, dict[str, Any]]:
    """Every kind of result, by path below results/."""
    capacity = {
        f"{model}/int8": {
            "model": model,
            "title": model.upper(),
            "dtype": "int8",
            "gain_percent": 25.0,
            "plans": {"before": plan(1000), "after": plan(1250)},
        }
        for model in ("m", "m-draft")
    }
    mixed = {"int8": {"step_ms": [2.0, 2.0, 9.0, 2.0], "arrival": 2, "step_ms_p99": 9.0}}
    buckets = [{"from": 512 * n, "to": 512 * n + 512, "delta_nll": 1e-3 * n} for n in range(3)]
    suites = {
        path: {
            "before": {"counts": counts, "failed": [], "cut": cut, "output": ""},
            "after": {"counts": counts, "failed": [], "cut": cut, "output": ""},
            "new_failures": [],
            "not_compared": [],
        }
        for path, counts, cut in (("tests/a.py", {"passed": 7}, False), ("tests/b.py", {}, True))
    }
    paired = {"int8": {"lost": 3, "gained": 1, "n": 100, "p_value": 0.625, "truncated": {"a": 2}}}
    return {
        "h200/bench_quant_vs_flash/result.json": result(
            "bench_quant_vs_flash", kernel_cells(), commit, summary={"reference": "fa-bf16"}
        ),
        "cpu/capacity/1GiB.json": result(
            "capacity", capacity, commit, summary={"without_drafter": {"m": None, "m-draft": "m"}}
        ),
        "h200/sweep_decode/int8.json": result(
            "sweep_decode",
            {},
            commit,
            summary={"entries": [["sm90", "int8", 256, 8, "few", "16,1,12,1", 0.65]]},
        ),
        "h200/release_suites/result.json": result(
            "release_suites",
            suites,
            commit,
            summary={"files": 2, "new_failures": [], "cut": ["tests/b.py"]},
        ),
        "h200/mixed_serving/result.json": result(
            "mixed_serving",
            mixed,
            commit,
            summary={"reference": "auto", "ratio": {"int8": {"alone_ms_p50": 0.889}}},
        ),
        "h200/quality_teacher_forced/result.json": result(
            "quality_teacher_forced", {"int8": {"buckets": buckets}}, commit
        ),
        "h200/quality_paired_tasks/result.json": result("quality_paired_tasks", paired, commit),
    }
