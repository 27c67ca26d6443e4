"""Fixtures of the harness's tests: a small repository whose series is applied and committed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The labs of the series' tools serve here too.
sys.path.append(str(Path(__file__).parents[1] / "tooling"))

import ab_fixtures  # noqa: E402
from harness_lab import Bench  # noqa: E402


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> ab_fixtures.Stack:
    stack = ab_fixtures.make(tmp_path_factory.mktemp("harness"))
    (stack.patches / "series").write_text("")
    stack.run("scripts.series", "export")
    (stack.root / ".gitignore").write_text("/vllm/\n/.work/\n/.cache/\n")
    stack.git("init", "--quiet", cwd=stack.root)
    bench = Bench(stack, stack.root)
    bench.commit()
    return stack


@pytest.fixture
def bench(template: ab_fixtures.Stack, tmp_path: Path) -> Bench:
    """A repository with the series applied and committed; no GPU."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Bench(template.copy(tmp_path), scratch)
