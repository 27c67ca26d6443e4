"""The release's tests run in a process of their own, beside all other tests."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import release

from scripts.common import ROOT, VLLM

TEST = Path(__file__).parent / "test_release.py"
STARTED = pytest.StashKey[tuple[subprocess.Popen[bytes], Path]]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Most other tests keep one core busy, so that this takes no time of its own."""
    wanted = any(item.path == TEST and not item.get_closest_marker("gpu") for item in session.items)
    if not wanted or session.config.option.collectonly:
        return
    folder = Path(tempfile.mkdtemp(prefix="upstream-"))
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, release.__file__, VLLM, folder / "report.json", *release.files()]
            + ["--sample"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    session.config.stash[STARTED] = process, folder


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nothing of it outlives the session; it ends what it has started itself."""
    process, folder = session.config.stash.get(STARTED, (None, None))
    if process is None:
        return
    if process.poll() is None:
        process.terminate()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def outcome(pytestconfig: pytest.Config) -> Iterator[dict[str, Any]]:
    """What `release.run` returns for all files."""
    process, folder = pytestconfig.stash[STARTED]
    process.wait()
    report = folder / "report.json"
    assert report.exists(), (folder / "log.txt").read_text(errors="replace")[-8000:]
    yield json.loads(report.read_text())
