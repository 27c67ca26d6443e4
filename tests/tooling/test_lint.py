"""scripts.lint names each check that fails, and only those."""

from __future__ import annotations

from pathlib import Path

import pytest
from ab_fixtures import Files, Patches, Stack, make
from series_lab import REASON

PYPROJECT = '[tool.ruff]\nline-length = {}\n[tool.ruff.lint]\nselect = ["E", "F"]\n'
LONG = f"X = '{'x' * 70}'\n"
# One file of the base breaks the rules: it is not the series' to mend.
BASE: Files = {
    "pyproject.toml": PYPROJECT.format(60),
    "vllm/__init__.py": "",
    "vllm/not_ours.py": "import os\n",
}
PATCHES: Patches = [
    ("[Core] Ours", REASON, {"vllm/ours.py": "X = 1\n", "vllm/data.txt": "import os\n"})
]


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """Everything in it is well."""
    stack = make(tmp_path, BASE, PATCHES)
    own = {
        "pyproject.toml": PYPROJECT.format(100),
        "scripts/tool.py": "X: int = 1\n",
        "tests/test_tool.py": "Y = 2\n",
    }
    stack.write(own, below=".")
    stack.run("scripts.series", "export")
    return stack


def lint(stack: Stack, code: int) -> tuple[str, list[str]]:
    """The output and the names of the failed checks."""
    out = stack.run("scripts.lint", code=code)
    failed = [line for line in out.splitlines() if line.startswith("FAILED ")]
    return out, [line.removeprefix("FAILED ").rpartition(" (")[0] for line in failed]


def test_all_well(stack: Stack) -> None:
    out, failed = lint(stack, 0)
    assert not failed
    assert [line.split()[0] for line in out.splitlines()] == ["ok"] * 6


def test_each_fault_fails_its_own_check(stack: Stack) -> None:
    (stack.root / "patches/0001-stray.patch").write_text("")
    stack.write({"vllm/ours.py": LONG.replace("'", '"')})
    stack.write({"tests/test_tool.py": LONG, "scripts/tool.py": 'X: int = "one"\n'}, below=".")
    out, failed = lint(stack, 1)
    assert failed == [
        "the patches",
        "rules, the series' files in vllm/ (1)",
        "formatting, scripts/ and tests/",
        "types, scripts/",
    ]
    assert "E501" in out and "not_ours" not in out
    assert 'expression has type "str"' in out
    assert out.splitlines()[-1].startswith("4 failed: the patches; rules, ")


def test_an_unapplied_series_is_refused(stack: Stack) -> None:
    stack.git("reset", "-q", "--hard", "HEAD~1")
    assert "make apply" in stack.run("scripts.lint", code=1)


def test_missing_tools_are_named(stack: Stack) -> None:
    """-S: a Python without its installed packages."""
    output = stack.start("-S", "-m", "scripts.lint").communicate(timeout=30)[0]
    assert "has no ruff and no mypy" in output and "make build" in output
