"""The release's suites before and after the series: compared by case, and run in a small part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import release_suites
from scripts.common import ROOT, Failure

PATH = "tests/test_x.py"


def side(*failed: str, passed: tuple[str, ...] = (), cut: bool = False) -> dict[str, Any]:
    counts = {"failed": len(failed), "passed": 3}
    return {
        "counts": counts,
        "failed": list(failed),
        "passed": list(passed),
        "cut": cut,
        "output": "",
    }


def test_only_what_fails_with_the_series_alone_is_new() -> None:
    cell = release_suites.compared(side("a", "b"), side("b", "c"))
    assert cell["new_failures"] == ["c"] and cell["mended"] == ["a"]
    assert release_suites.row(PATH, cell) == [PATH, *["2 failed, 3 passed"] * 2, "1"]


def test_a_file_that_only_one_side_has() -> None:
    added = release_suites.compared(None, side())
    assert release_suites.row(PATH, added) == [PATH, "not there", "0 failed, 3 passed", "none"]
    gone = release_suites.compared(side("a"), None)
    assert gone["mended"] == [] and release_suites.row(PATH, gone)[2] == "not there"


def test_of_a_cut_file_only_what_both_sides_reached_is_compared() -> None:
    before, after = side("a", passed=("b",), cut=True), side("b", "c")
    cell = release_suites.compared(before, after)
    assert cell["new_failures"] == ["b"] and cell["not_compared"] == ["c"]
    assert "passed" not in cell["before"] and release_suites.row(PATH, cell)[1].endswith("(cut)")
    other = release_suites.compared(side("a", "b"), side(passed=("a",), cut=True))
    assert other["mended"] == ["a"]


def test_parts_make_one_side() -> None:
    whole = release_suites.joined([side("a", passed=("b",)), None, side("c", cut=True)])
    assert whole and whole["counts"] == {"failed": 2, "passed": 6} and whole["cut"]
    assert whole["failed"] == ["a", "c"] and whole["passed"] == ["b"]
    assert release_suites.joined([None]) is None


def test_what_is_kept_of_the_output_names_no_folder_of_the_machine() -> None:
    said = "/home/me/.venv/lib/python3.12/site-packages/torch/x.py:3: /a/vllm/tests/v1/test_y.py"
    assert release_suites.plain(said) == "site-packages/torch/x.py:3: tests/v1/test_y.py"
    assert release_suites.plain("left /tmp/z1 there") == "left  there"
    assert release_suites.plain("tests/v1/test_y.py 3/4") == "tests/v1/test_y.py 3/4"


def test_a_failure_beside_others_counts_if_it_fails_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = {"before": tmp_path / "old", "after": tmp_path / "new"}

    def alone(tree: Path, path: str, native: bool, *, cases: list[str]) -> dict[str, Any]:
        failing = {"old": {"x::a"}, "new": {"x::a", "x::b"}}[tree.name]
        return side(*(case for case in cases if case in failing))

    monkeypatch.setattr(release_suites, "outcome", alone)
    cell = release_suites.compared(side(), side("x::a", "x::b", "x::c", "x (the process)"))
    found = release_suites.again(cell, trees, "x", True)
    assert found["new_failures"] == ["x (the process)", "x::b"]
    assert found["unsteady"] == ["x::a", "x::c"]
    assert release_suites.again(release_suites.compared(side(), side()), trees, "x", True) == (
        release_suites.compared(side(), side())
    )


def test_a_crash_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = tmp_path / "runner.py"
    runner.write_text("import os\nprint('bye', flush=True)\nos.abort()\n")
    monkeypatch.setattr(release_suites, "_RUNNER", runner)
    (tmp_path / "tests").mkdir()
    (tmp_path / PATH).write_text("")
    found = release_suites.outcome(tmp_path, PATH, True, "")
    assert found and found["failed"] == [f"{PATH} (the process)"] and "bye" in found["output"]
    assert release_suites.outcome(tmp_path, "tests/test_absent.py", True, "") is None


RUNNER = """
import json, sys, time
tree, report, *rest = sys.argv[1:]
names = rest[: rest.index("--part")]
cases = [f"{name}::test" for name in names]
(FOUND)
json.dump(found, open(report, "w"))
"""


@pytest.fixture
def three_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs three files and one that the tree has not; the runner says what it is told to."""

    def run(found: str) -> dict[str, Any]:
        runner = tmp_path / "runner.py"
        runner.write_text(RUNNER.replace("(FOUND)", found))
        monkeypatch.setattr(release_suites, "_RUNNER", runner)
        (tmp_path / "tests").mkdir(exist_ok=True)
        for name in "abc":
            (tmp_path / f"tests/{name}.py").write_text("")
        paths = [f"tests/{name}.py" for name in "abcd"]
        return release_suites.outcomes(tmp_path, paths, True)

    return run


def test_files_that_share_a_process_are_told_apart(three_files: Any) -> None:
    found = three_files(
        "found = {'outcomes': {n: {'passed': 1} for n in names[:2]} | {names[2]: {'failed': 1}},"
        "'failed': cases[2:], 'passed': cases[:2], 'ended': True, 'cut': False, 'output': 'bad'}"
    )
    a, b, c, d = found.values()
    assert a["passed"] == ["tests/a.py::test"] and not a["failed"] and not a["output"]
    assert c["failed"] == ["tests/c.py::test"] and c["output"] == "bad" and not c["passed"]
    assert d is None and not any(side["cut"] for side in (a, b, c))


def test_a_limit_cuts_the_file_that_ran_and_those_behind_it(three_files: Any) -> None:
    found = three_files(
        "found = {'outcomes': {n: {'passed': 1} for n in names[:2]}, 'failed': [],"
        "'passed': cases[:2], 'ended': False, 'cut': True, 'output': ''}"
    )
    assert [side and side["cut"] for side in found.values()] == [False, True, True, None]


def test_a_crash_of_a_shared_process_is_one_file_s(three_files: Any) -> None:
    found = three_files(
        "found = {'outcomes': {names[0]: {'passed': 1}}, 'failed': [], 'passed': cases[:1],"
        "'ended': True, 'cut': False, 'output': ''}\n"
        "if 'tests/b.py' in names: sys.exit('boom')"
    )
    a, b, c, d = found.values()
    assert a["passed"] and c["passed"] and d is None
    assert b["failed"] == ["tests/b.py (the process)"] and "boom" in b["output"]


def test_small_files_share_processes_and_large_ones_come_last() -> None:
    small = [f"tests/v1/core/test_{i}.py" for i in range(20)]
    large = list(release_suites.PARTS)[1::-1]
    groups = release_suites.grouped([*large, *small], 8)
    assert groups[:-2] == [small[i : i + 5] for i in range(0, 20, 5)]
    assert groups[-2:] == [[path] for path in list(release_suites.PARTS)[:2]]
    assert release_suites.grouped(small[:1], 8) == [small[:1]]


def test_a_pattern_without_files_is_refused() -> None:
    with pytest.raises(Failure, match="no test file of the release is named tests/nothing"):
        release_suites.files(["tests/nothing*.py"], {"x": ROOT})


def test_smoke_runs_both_sides(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "scripts.release_suites", "--smoke", "--fresh", "--jobs", "2"]
    done = subprocess.run(
        [*command, "--out", str(out)],
        cwd=ROOT,
        env=os.environ | {"DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    (cell,) = result["cells"].values()
    assert cell["before"]["counts"]["passed"] == cell["after"]["counts"]["passed"] > 0
    assert result["summary"] == {
        "files": 1,
        "new_failures": [],
        "not_compared": [],
        "cut": [],
    }
