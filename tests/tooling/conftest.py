"""Fixtures of the series' tests: a small repository, with and without the series applied."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from series_lab import BASE_FILES, COMMIT, EDITS, SUBJECTS, VERSION, Lab, make_sdist


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The repository that every lab is a copy of, its six patches exported from a stack."""
    root = tmp_path_factory.mktemp("template") / "repository"
    sdist = make_sdist(BASE_FILES)
    empty = root.parent / "gitconfig"
    empty.write_text("")
    lab = Lab(
        root,
        {
            "QUANT_KV_BASE_VERSION": VERSION,
            "QUANT_KV_BASE_COMMIT": COMMIT,
            "QUANT_KV_SDIST_SHA256": hashlib.sha256(sdist).hexdigest(),
            "GIT_CONFIG_GLOBAL": str(empty),
            "GIT_CONFIG_NOSYSTEM": "1",
        },
    )
    (root / ".cache").mkdir(parents=True)
    (root / ".cache" / f"vllm-{VERSION}.tar.gz").write_bytes(sdist)
    (root / ".gitmodules").write_text(
        f'[submodule "vllm"]\n\tpath = vllm\n\turl = file://{root}/nowhere.git\n'
    )
    (root / "patches").mkdir()
    (root / "patches" / "series").write_text("")
    lab.run("apply")
    for subject, edit in zip(SUBJECTS, EDITS, strict=True):
        edit(lab.vllm)
        lab.commit(subject)
    lab.run("export")
    shutil.rmtree(lab.vllm)
    return lab


def _copy(lab: Lab, root: Path) -> Lab:
    shutil.copytree(lab.root, root)
    return Lab(root, dict(lab.env))


@pytest.fixture
def lab(template: Lab, tmp_path: Path) -> Lab:
    """A fresh copy of the template: nothing in vllm/ yet, the sdist in the cache."""
    return _copy(template, tmp_path / "repository")


@pytest.fixture(scope="session")
def applied_template(template: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The template with the series applied."""
    lab = _copy(template, tmp_path_factory.mktemp("applied") / "repository")
    lab.run("apply")
    return lab


@pytest.fixture
def applied(applied_template: Lab, tmp_path: Path) -> Lab:
    """A fresh copy with the series applied."""
    return _copy(applied_template, tmp_path / "applied")
