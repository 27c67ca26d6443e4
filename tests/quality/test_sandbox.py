"""The limits of executed answers, and HumanEval's own checks in them."""

import time
from pathlib import Path

import pytest

from scripts.quality import humaneval, sandbox, tasks
from scripts.quality.sandbox import Limits, execute

LIMITS = Limits(seconds=5, memory=1 << 29)


@pytest.mark.parametrize(
    "program",
    [
        "while True: pass",
        "import time\ntime.sleep(60)",
        "try:\n    while True: pass\nfinally:\n    pass",
    ],
)
def test_a_program_that_does_not_end_is_ended(program: str) -> None:
    start = time.monotonic()
    outcome = execute(program, Limits(seconds=0.5))
    assert not outcome.passed and "longer than 0.5 s" in outcome.why
    assert time.monotonic() - start < 5


def test_memory_is_limited() -> None:
    assert execute("x = bytearray(1 << 30)", LIMITS).why == "MemoryError"
    assert execute("x = bytearray(1 << 20)", LIMITS).passed


def test_a_file_outside_of_its_folder_cannot_be_written(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("mine")
    for change in (
        f"open({str(tmp_path / 'new')!r}, 'w')",
        f"open({str(kept)!r}, 'a').write('x')",
        f"import os; os.remove({str(kept)!r})",
        f"import os; os.rename({str(kept)!r}, 'stolen')",
        f"import os; os.symlink({str(kept)!r}, 'link'); open('link', 'w')",
        f"import os; os.open('new', os.O_CREAT, dir_fd=os.open({str(tmp_path)!r}, 0))",
    ):
        outcome = execute(change, LIMITS)
        assert not outcome.passed and "not allowed" in outcome.why, change
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "mine"
    assert execute("open('new', 'w').write('x'); assert open('new').read() == 'x'", LIMITS).passed


@pytest.mark.parametrize(
    "program",
    [
        "import os; os.system('true')",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.fork()",
        "import os; os.kill(os.getppid(), 0)",
        "import ctypes",
        "import socket; socket.socket().connect(('127.0.0.1', 9))",
    ],
)
def test_neither_processes_nor_network_are_reached(program: str) -> None:
    outcome = execute(program, LIMITS)
    assert not outcome.passed and "not allowed" in outcome.why


@pytest.mark.parametrize(
    "program", ["raise SystemExit(0)", "import os; os._exit(0)", "assert 1 == 2", "def f(:"]
)
def test_only_a_program_that_ran_to_its_end_has_passed(program: str) -> None:
    assert not execute(program, LIMITS).passed


def test_the_solutions_of_humaneval_pass_and_others_fail() -> None:
    problems = humaneval.problems(3)
    right = [problem["canonical_solution"] for problem in problems]
    assert [one.passed for one in humaneval.check(problems, right)] == [True] * 3
    wrong = ["    return None\n"] * 3
    assert [one.passed for one in humaneval.check(problems, wrong)] == [False] * 3


def test_an_answer_ends_where_another_definition_begins() -> None:
    body = "    return a + b\n"
    assert humaneval.cut(body + "\n\ndef other():\n    pass") == (body + "\n", True)
    assert humaneval.cut(body) == (body, False)


def test_an_answer_that_was_cut_off_is_truncated() -> None:
    problems = humaneval.problems(3)
    bodies = [problem["canonical_solution"] for problem in problems]
    answers = [
        {"text": bodies[0], "finish": "stop"},
        {"text": bodies[1] + "\ndef more():", "finish": "length"},
        {"text": bodies[2], "finish": "length"},
    ]
    judged = list(tasks.judge_humaneval(problems, answers).values())
    assert [one["right"] for one in judged] == [True, True, True]
    assert [one["truncated"] for one in judged] == [False, False, True]


def test_programs_run_in_order() -> None:
    found = sandbox.execute_all(["x = 1", "raise KeyError(7)", "x = 2"], LIMITS)
    assert [one.passed for one in found] == [True, False, True]
    assert found[1].why == "KeyError: 7"
