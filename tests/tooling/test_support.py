"""The support table: README's is what the code says, and only results say that a GPU ran it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.common import BASE_VERSION, ROOT, VLLM, Failure
from scripts.report.load import Result
from scripts.series import upstream
from scripts.support import __main__ as support
from scripts.support import measured, table
from scripts.support.dispatched import Feature, Kernel

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
        "interpreted": {CACHE: {112, 64}},
        "features": [Feature("ALiBi", False, False)],
        "other_caches": ["nvfp4"],
    }
    return table.Facts(**usual | changes)


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.partition("\n\n")[0].splitlines()[2:]]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.fixture(scope="module")
def printed() -> str:
    """The tables of this tree."""
    command = [sys.executable, "-m", "scripts.support"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def ways_of(text: str) -> dict[str, list[str]]:
    """What runs decode and prefill, to the features."""
    lines = [line[2:].rstrip(".") for line in text.splitlines() if line.startswith("- ")]
    return {ways: words.split("; ") for ways, _, words in (line.partition(": ") for line in lines)}


def reasons() -> Iterator[str]:
    """Patterns of what the dispatches return, read from their source."""
    for name in ("dispatch", "prefill_dispatch"):
        path = VLLM / "vllm/v1/attention/ops/quant_kv" / f"{name}.py"
        for function in ast.parse(path.read_text()).body:
            if isinstance(function, ast.FunctionDef) and function.name.startswith("why_"):
                for node in ast.walk(function):
                    value = node.value if isinstance(node, ast.Return) else None
                    parts = value.values if isinstance(value, ast.JoinedStr) else [value]
                    words = [
                        part.value if isinstance(part, ast.Constant) else ... for part in parts
                    ]
                    if any(isinstance(word, str) for word in words):
                        yield "".join(".+" if w is ... else re.escape(str(w)) for w in words)


def test_readme_says_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.support", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_reason_of_the_dispatch_is_told(printed: str) -> None:
    told = [word for words in ways_of(printed).values() for word in words]
    # Told by a column, by a sentence, by the size that prefill takes alone, and never met: the plan
    # has room for every request of an engine.
    others = re.compile(r"prefill$|the.cache.is|head.size.*of.+8.+up|more.+requests.+than")
    missing = {
        reason
        for reason in reasons()
        if not others.match(reason.replace("\\", ""))
        and not any(re.search(f"{reason}$", word) for word in told)
    }
    assert len(list(reasons())) > 30
    assert not missing


def test_what_decode_and_prefill_take(printed: str) -> None:
    both, decode, prefill, neither = ways_of(printed).values()
    for words in (CACHE, "int4_per_token_head", "int4_kivi"):
        assert f"`{words}`" in both
    assert {"a sliding window", "attention sinks", "a soft cap"} < set(both)
    assert "FlashAttention takes no torch.float32" in decode
    assert "a KV connector reads the pages" in prefill
    assert {"ALiBi", "batch-invariant runs split no context"} < set(neither)


def test_every_cache_is_interpreted_in_tests(printed: str) -> None:
    found = {row[0]: row[-1] for row in rows(printed) if row[1] == "others, no GPU"}
    assert len(found) == 3
    assert all(cell.startswith("any: interpreted in tests at ") for cell in found.values())


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
        ["others, no GPU", "64 to 128", "-", "any: interpreted in tests at 64, 112"],
    ]
    text = table.render(facts(interpreted={"int4_kivi": {64}}))
    assert rows(text)[-1][-1] == "any: not compiled in tests"


def test_features_by_what_runs_them() -> None:
    answers = [("a", True, True), ("b", False, True), ("c", True, True), ("d", False, False)]
    text = table.render(facts(features=[Feature(*answer) for answer in answers]))
    assert list(ways_of(text).items()) == [
        ("fused decode, prefill by FlashAttention", ["a", "c"]),
        ("decode by the unified kernel, prefill by FlashAttention", ["b"]),
        ("both by the unified kernel", ["d"]),
    ]


@pytest.mark.parametrize(("path", "same"), [("tests/new.py", True), ("vllm/new.py", False)])
def test_only_code_makes_a_releases_kernels_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str, same: bool
) -> None:
    (tmp_path / "ports/1.2").mkdir(parents=True)
    one = upstream.Differing("0003-a.patch", path, True)
    monkeypatch.setattr(support, "PATCHES", tmp_path)
    monkeypatch.setattr(support, "series", list)
    monkeypatch.setattr(upstream, "differing", lambda version: [one])
    found = [(release.version, release.same_kernels) for release in support._releases({})]
    assert found == [(BASE_VERSION, True), ("1.2", same)]


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
