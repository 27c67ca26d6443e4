"""python -m scripts.plan: sizes, tables, JSON, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.common import Failure
from scripts.plan import __main__ as cli
from scripts.plan import planner, steptime
from scripts.plan.geometry import find
from scripts.plan.memory import memory_bytes


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr("sys.argv", ["plan", *words])
    cli._run()


@pytest.mark.parametrize(
    "text,size",
    [
        ("12GiB", 12 * 2**30),
        ("12G", 12 * 2**30),
        ("12GB", 12 * 10**9),
        ("0.5 TiB", 2**39),
        ("900MiB", 900 * 2**20),
        ("8589934592", 2**33),
    ],
)
def test_memory(text: str, size: int) -> None:
    assert memory_bytes(text) == size


@pytest.mark.parametrize("text", ["", "lots", "12Gib", "12 parsecs", "-3GiB", "0GiB", "nan", "1e9"])
def test_nonsense_memory_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="12GiB"):
        memory_bytes(text)


def test_table_and_rivals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "--model", "qwen3.6-27b-dflash", "--rivals")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    rules = ("before", "after", "#49472", "#58175", "#56445")
    found = {rule: next(line for line in lines if rule in line) for rule in rules}
    assert "80.00" in found["before"] and "64.00" in found["after"]
    assert found["after"][-2].startswith("+")


def test_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    run(monkeypatch, "--model", "gemma-3-27b", "--context", "8192", "--json", str(file))
    (row,) = json.loads(file.read_text())
    assert row["context"] == 8192 and row["plans"].keys() == {"before", "after"}
    gain = row["plans"]["after"]["tokens"] / row["plans"]["before"]["tokens"] - 1
    assert row["gain_percent"] == pytest.approx(100 * gain, abs=0.01)


@pytest.mark.parametrize(
    "words,message",
    [
        (["--memory", "1MiB"], "more MEMORY"),
        (["--memory", "many"], "12GiB"),
        (["--context", "0"], "--context 0"),
        (["--tp", "0"], "--tp 0"),
        (["--model", "nothing"], "known models"),
    ],
)
def test_errors(monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    with pytest.raises(Failure, match=message):
        run(monkeypatch, "--model", "gemma-3-27b", *words)


def test_an_unpatched_tree_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(planner.after(), "_select_group_size")
    planner.after.cache_clear()
    try:
        with pytest.raises(Failure, match="make apply"):
            planner.after()
    finally:
        planner.after.cache_clear()


def test_step_time_covers_every_rule() -> None:
    (geometry,) = find("qwen3.6-27b-dflash")
    rows = {row["rule"]: row for row in steptime.measure(geometry, requests=4, steps=9)}
    assert {rule: row["groups"] for rule, row in rows.items()} == {
        "before": 15,
        "after": 5,
        "#49472": 9,
        "#58175": 18,
        "#56445": 15,
    }
    # 18 groups against 5, whatever the machine.
    assert rows["#58175"]["step_us"] > 1.5 * rows["after"]["step_us"] > 0
