"""Results of the series' own kernel benchmark, read as if the harness had written them.

benchmark_quant_kv_attention.py writes {"cases": {"decode-b1-32k-d256": {"fa3_bf16_us": ...}}}.
"""

from __future__ import annotations

import re
from typing import Any

from scripts.attention import bench

_CASE = re.compile(
    r"(decode|verify(?P<queries>\d+))-(?:b(?P<count>\d+)-(?P<k>\d+)k|ragged)-d(?P<d>\d+)"
)
_GEOMETRY = {"256": "qwen3.6-27b", "128": "laguna-xs"}
_FORMATS = {"fa3_bf16_us": "fa-bf16", "fa3_fp8_us": "fa-fp8"}


def cells(data: dict[str, Any]) -> dict[str, Any]:
    """The file's cases as cells of bench_quant_vs_flash; those of the launch table as it is now."""
    found: dict[str, Any] = {}
    if "copy_tb_s" in data:
        found[bench.COPY] = {"bytes_per_s": data["copy_tb_s"] * 1e12}
    fused = data.get("format", "int8")
    for name, case in data["cases"].items():
        match = _CASE.fullmatch(name)
        if not match:
            continue
        times = {form: case[key] for key, form in _FORMATS.items() if key in case}
        # INT4-KIVI has no stock kernel: its cache is gathered and attended to.
        for key, other in (("unified_us", "stock"), ("dense_us", "gather")):
            if key in case:
                times[f"{fused}-{other}"] = case[key]
        launch = case["fused"][case.get("launch_table_now", "table")]
        if "median_us" in launch:
            times[fused] = launch["median_us"]
        about = _about(match)
        for form, median in times.items():
            key = f"{about['geometry']}/{about['batch']}/{form}"
            found[key] = about | {"format": form, "read": {"p50": median}}
    return found


def _about(match: re.Match[str]) -> dict[str, Any]:
    geometry = _GEOMETRY[match["d"]]
    if not match["count"]:
        return {
            "geometry": geometry, "batch": "31q1s1k_q1s64k", "kind": "decode",
            "requests": 32, "context": 65536,
        }  # fmt: skip
    queries, count, thousands = (int(match[name] or 1) for name in ("queries", "count", "k"))
    return {
        "geometry": geometry,
        "batch": f"{count if count > 1 else ''}q{queries}s{thousands}k",
        "kind": "decode" if queries == 1 else "verify",
        "requests": count,
        "context": 1024 * thousands,
    }
