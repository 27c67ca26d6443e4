"""make check-series on a small base: what is green, each way to fail, and what is run again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ab_fixtures import Patches, Stack
from check_lab import GPU_FILE, OLD_ERROR, PRE_COMMIT, counted, good, lab
from series_lab import REASON

from scripts.common import Failure
from scripts.series import linters


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Gets a line for each test that ran."""
    path = tmp_path / "log"
    path.write_text("")
    return path


def check(stack: Stack, *args: str, code: int = 0) -> str:
    return stack.run("scripts.series", "check", *args, code=code)


def rows(output: str) -> dict[str, list[str]]:
    """The final table: number of a patch to its cells."""
    lines = output[output.index("patch  ") :].splitlines()[2:]
    cells = [re.split(r"  +", line) for line in lines if re.match(r"\d{4}-", line)]
    return {name[:4]: rest[:-1] for name, *rest in cells}


def test_green_and_not_run_twice(tmp_path: Path, log: Path) -> None:
    stack = lab(tmp_path, good(log))
    before = stack.head(), stack.contents()
    output = check(stack)
    assert rows(output) == {
        "0001": ["ok", "ok", "ok", "1 passed"],
        "0002": ["ok", "no Python", "no Python", "none carried"],
        "0003": ["ok", "ok", "ok", "1 passed"],
    }
    assert "green on v0.31.0, each at its own place: 3 of 3 patches" in output
    assert f"needs a GPU (make test-gpu): {GPU_FILE}" in output
    assert log.read_text() == "plan\nkernel\n"
    assert (stack.head(), stack.contents()) == before

    again = check(stack)
    assert rows(again) == rows(output) and again.count("(as before)") == 9
    assert log.read_text() == "plan\nkernel\n"


def test_only_what_changed_is_run_again(tmp_path: Path, log: Path) -> None:
    stack = lab(tmp_path, good(log))
    check(stack)
    stack.write({"tests/test_kernel.py": counted(log, "kernel", 3) + "\n\nX = 1\n"})
    stack.git("commit", "--quiet", "--all", "--amend", "--no-edit")
    stack.run("scripts.series", "export")
    check(stack)
    assert log.read_text() == "plan\nkernel\nkernel\n"


def test_one_patch_and_the_places_where_tests_run(tmp_path: Path, log: Path) -> None:
    stack = lab(tmp_path, good(log))
    assert rows(check(stack, "0003", "--tests", "none")) == {"0003": ["ok", "ok", "ok", "-"]}
    assert log.read_text() == ""
    found = rows(check(stack, "--tests", "below"))
    assert [cells[-1] for cells in found.values()] == ["1 passed", "none carried", "-"]
    assert list(rows(check(stack, "1"))) == ["0001"]
    assert log.read_text() == "plan\n"
    assert "no patch has the number 7" in check(stack, "7", code=1)


def faulty(log: Path) -> Patches:
    return [
        (
            "[Core] Needs what a later patch adds",
            REASON,
            {"tests/test_later.py": counted(log, "later", 4)},
        ),
        (
            "[Core] A type error more, and ruff's",
            REASON,
            {"vllm/plan.py": f'import os\n{OLD_ERROR}SIZE: int = "two"\n'},
        ),
        ("[Core] Adds it", REASON, {"vllm/later.py": "SIZE = 4\n"}),
        ("[Core] No test runs", REASON, {"tests/test_none.py": "X = 1\n"}),
    ]


def test_each_fault_at_its_own_place(tmp_path: Path, log: Path) -> None:
    stack = lab(tmp_path, faulty(log))
    output = check(stack, code=1)
    assert rows(output) == {
        "0001": ["ok", "ok", "ok", "FAILED"],
        "0002": ["ok", "FAILED", "FAILED", "none carried"],
        "0003": ["ok", "ok", "ok", "none carried"],
        "0004": ["ok", "ok", "ok", "FAILED"],
    }
    assert "No module named 'vllm.later'" in output
    assert "vllm/plan.py:1:8: F401" in output
    # The base's own error, a line further down now, is not the patch's.
    assert "vllm/plan.py:3: Incompatible types" in output
    assert "vllm/plan.py:2:" not in output
    assert "none runs, in tests/test_none.py" in output
    assert log.read_text() == ""
    assert "FAILED" in check(stack, "0001", code=1), "a failure is not kept"


def test_what_does_not_apply_ends_the_run(tmp_path: Path, log: Path) -> None:
    stack = lab(tmp_path, good(log))
    second = stack.patch(2)
    second.write_text(second.read_text().replace("-note 3\n", "-note three\n"))
    output = check(stack, "--tests", "none", code=1)
    assert "vllm/notes.txt: hunk 1 of 1 does not apply" in output
    assert list(rows(output)) == ["0001", "0002"] and rows(output)["0002"][0] == "FAILED"
    assert "not reached: 0003-" in output


def test_a_configuration_of_another_form_is_refused() -> None:
    pins = linters.pins(PRE_COMMIT)
    assert pins.python == "3.11" and pins.requirements[-1] == "regex"
    with pytest.raises(Failure, match="0 ruff and 1 mypy"):
        linters.pins(PRE_COMMIT.replace("astral-sh", "elsewhere"))
    with pytest.raises(Failure, match="1 ruff and 2 mypy"):
        linters.pins(PRE_COMMIT.replace("    stages: [manual]\n", ""))


def test_other_versions_get_an_environment_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[tuple[str, ...]] = []
    monkeypatch.setattr(linters, "CACHE", tmp_path)
    monkeypatch.setattr(linters, "pip", lambda python, *words, **_: installed.append(words))
    monkeypatch.setattr(
        linters.subprocess, "run", lambda command, check: command[-1].mkdir(parents=True)
    )
    (tmp_path / linters.CONFIGURATION).write_text(re.sub("rev: v.*", "rev: v0.0.1", PRE_COMMIT))
    for _ in range(2):
        linters._tools.cache_clear()
        found = linters.tools(tmp_path)
    assert [words[:2] for words in installed] == [("install", "ruff==0.0.1")]
    assert found.python.is_relative_to(tmp_path)
    assert found.environment()["PATH"].startswith(str(found.python.parent))
