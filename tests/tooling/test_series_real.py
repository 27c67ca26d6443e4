"""The series on the real base, in a scratch repository."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from series_lab import Lab

from scripts.common import BASE_COMMIT, BASE_VERSION, SDIST_SHA256, series_names
from scripts.series import sdist


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A scratch repository with our patches; the sdist is downloaded only if not cached."""
    root = tmp_path_factory.mktemp("real") / "repository"
    repository = Path(__file__).parents[2]
    shutil.copytree(repository / "patches", root / "patches")
    lab = Lab(root, {"QUANT_KV_SDIST": str(sdist.fetch(BASE_VERSION))})
    lab.run("apply")
    yield lab
    shutil.rmtree(root)


def test_every_patch_is_applied_and_exported_alike(real: Lab) -> None:
    count = len(series_names())
    assert real.depth() == count and real.changes() == ""
    before = real.exported()
    real.run("export")
    assert real.exported() == before
    assert f"{count} of {count} patches are already applied" in real.run("apply")


def test_lint_is_clean(real: Lab) -> None:
    assert "patches/ is sound" in real.run("lint")


def test_base_without_its_patches_is_the_release(real: Lab) -> None:
    real.run("unapply")
    assert real.depth() == 0 and real.changes() == ""
    assert real.git("config", "series.baseCommit").strip() == BASE_COMMIT
    assert SDIST_SHA256 in real.git("show", "-s", "--format=%B")
