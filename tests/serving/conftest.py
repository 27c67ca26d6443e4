"""Every script once, end to end, on the tiny model over interpreted kernels."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scripts.common import ROOT

INT8, KIVI = "int8_per_token_head", "int4_kivi"
RUNS = {
    "teacher engine": ("quality_teacher_forced", "--route", "engine", "--caches", INT8),
    "teacher torch": ("quality_teacher_forced", "--route", "torch", "--caches", "auto", INT8, KIVI),
    "paired": ("quality_paired_tasks", "--caches", "auto", INT8),
    "decode": ("decode_latency_serving", "--caches", INT8),
    "mixed": ("mixed_serving", "--caches", "auto", INT8, "--drafts", "2", "--alternate"),
    "longctx": ("longctx_code_serving", "--caches", INT8),
}
Result = Callable[[str], dict[str, Any]]


HERE = Path(__file__).parent


class Smokes:
    """All runs, one after the other, beside other tests that keep one core busy."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="smoke-"))
        self.running: subprocess.Popen[str] | None = None
        self.pool = ThreadPoolExecutor(1)
        self.results: dict[str, Future[dict[str, Any]]] = {
            name: self.pool.submit(self.run, name) for name in RUNS
        }

    def run(self, name: str) -> dict[str, Any]:
        """One run's JSON, and what it printed."""
        script, *flags = RUNS[name]
        out = self.folder / f"{name}.json"
        self.running = subprocess.Popen(
            [sys.executable, "-m", f"scripts.{script}", "--smoke", "--fresh", "--out", str(out)]
            + flags,
            cwd=ROOT,
            env=os.environ | {"DEVICE": "cpu"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        printed, errors = self.running.communicate()
        assert self.running.returncode == 0, printed[-2000:] + errors[-4000:]
        return json.loads(out.read_text()) | {"printed": printed}

    def end(self) -> None:
        """Nothing of it outlives the session."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        if self.running is not None and self.running.poll() is None:
            self.running.terminate()
        self.pool.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)


SMOKES = pytest.StashKey[Smokes]()


def pytest_collection_finish(session: pytest.Session) -> None:
    wanted = any(
        item.path.parent == HERE and "smoke" in getattr(item, "fixturenames", ())
        for item in session.items
    )
    if wanted and not session.config.option.collectonly:
        session.config.stash[SMOKES] = Smokes()


def pytest_sessionfinish(session: pytest.Session) -> None:
    smokes = session.config.stash.get(SMOKES, None)
    if smokes is not None:
        smokes.end()


@pytest.fixture(scope="session")
def smoke(pytestconfig: pytest.Config) -> Result:
    """Name of a run -> its JSON."""
    results = pytestconfig.stash[SMOKES].results
    return lambda name: results[name].result()
