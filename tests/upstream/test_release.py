"""The release's own tests of what the series touches still pass on the patched tree."""

from pathlib import Path
from typing import Any

import pytest
import release

from scripts.common import VLLM


@pytest.mark.parametrize("path", release.files())
def test_release_tests_pass(outcome: dict[str, Any], path: str) -> None:
    counts = outcome["outcomes"].get(path, {})
    assert not counts.get("failed"), outcome["output"][-20000:]
    assert counts.get("passed"), f"no test of {path} ran:\n{outcome['output'][-8000:]}"


def test_every_listed_name_exists(outcome: dict[str, Any]) -> None:
    assert not outcome["absent"]
    assert [path for path in release.GPU_FILES if not (VLLM / path).exists()] == []


@pytest.mark.gpu
@pytest.mark.parametrize("path", release.native_files())
def test_release_tests_pass_natively(tmp_path: Path, path: str) -> None:
    """All tests of a file, those that need a GPU too."""
    outcome = release.run([path], tmp_path, interpreted=False)
    assert not outcome["outcomes"][path].get("failed"), outcome["output"][-20000:]
