"""The support table: README's is what the code says, and only results say that a GPU ran it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.common import ROOT, Failure
from scripts.report.load import Result
from scripts.support import measured, table
from scripts.support.dispatched import Kernel

CACHE = "int8_per_token_head"
CELL = {"geometry": "laguna-xs", "batch": "8q1s12k", "format": "int8", "read": {"p50": 1.0}}


def result(cells: dict[str, Any], **data: Any) -> Result:
    return Result(Path("x.json"), {"cells": cells, **data})


def on(name: str, **more: Any) -> dict[str, Any]:
    return {"environment": {"gpus": [{"name": name, **more}], "versions": {"vllm": "0.31.0"}}}


def facts(**changes: Any) -> table.Facts:
    kernels = [
        Kernel(CACHE, family, size, name, rows)
        for family in ("sm80", "sm90", "other")
        for size in (64, 80, 96, 112, 128)
        for name, rows in (("decode", 16), ("portable", 256))
        if name == "portable" or (family != "other" and size in (64, 128))
    ]
    usual: dict[str, Any] = {
        "kernels": kernels,
        "compiled": {(CACHE, "sm80", 64, "decode"), (CACHE, "sm90", 64, "decode")},
        "ran": {},
        "interpreted": {CACHE},
        "refusals": ["ALiBi"],
        "other_caches": ["nvfp4"],
    }
    return table.Facts(**usual | changes)


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.partition("\n\n")[0].splitlines()[2:]]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_readme_says_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.support", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_results_nothing_was_tested_on_a_gpu() -> None:
    assert "tested on" not in table.render(facts())
    ran = {(CACHE, "sm90", 128, "decode"): {"H200", "H100"}}
    found = [row for row in rows(table.render(facts(ran=ran))) if "tested on" in " ".join(row)]
    assert [row[:4] for row in found] == [[CACHE, "sm90", "128", "to 16: tested on H100, H200"]]


def test_architectures_and_sizes_that_are_alike_share_a_row() -> None:
    assert [row[1:] for row in rows(table.render(facts()))] == [
        ["sm80, sm90", "64", "to 16: compiled only", "any: not compiled in tests"],
        ["sm80, sm90", "80, 96, 112", "-", "any: not compiled in tests"],
        ["sm80, sm90", "128", "to 16: not compiled in tests", "any: not compiled in tests"],
        ["others, no GPU", "64 to 128", "-", "any: tested interpreted on a CPU"],
    ]


def test_steps_are_those_of_the_series_on_a_gpu() -> None:
    cells = {
        "ours": CELL,
        "stock": CELL | {"format": "int8-stock"},
        "not there": {key: CELL[key] for key in ("geometry", "batch", "format")},
        "verify": CELL | {"batch": "q6s4k"},
    }
    found = list(measured.steps([result(cells, **on("NVIDIA H200")), result(cells)]))
    assert [(step.card, step.capability, step.head_size) for step in found] == [
        ("H200", 90, 128)
    ] * 2
    assert [(step.rows, step.requests) for step in found] == [(6, 8), (36, 1)]
    assert {step.version for step in found} == {"0.31.0"}


def test_a_card_is_known_by_the_result_or_by_its_name() -> None:
    (step,) = measured.steps([result({"a": CELL}, **on("NVIDIA New", capability=130))])
    assert step.capability == 130
    with pytest.raises(Failure, match="unknown architecture, New: add it to cards.toml"):
        list(measured.steps([result({"a": CELL}, **on("NVIDIA New"))]))


def test_releases() -> None:
    releases = [
        table.Release("1.0", (), True, ("H200",)),
        table.Release("1.2", ("0003",), False, ()),
    ]
    text = table.render(facts(releases=releases))
    last = [line.split("|") for line in text.rpartition("\n\n")[2].splitlines()[2:]]
    assert [[cell.strip() for cell in row[1:-1]] for row in last] == [
        ["1.0", "the series itself", "the same files", "H200"],
        ["1.2", "ports of 0003", "differ: see the ports' messages", "no GPU yet"],
    ]
