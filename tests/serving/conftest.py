"""Every script once, end to end, on the tiny model over interpreted kernels."""

import json
import os
import subprocess
import sys
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
    "mixed": ("mixed_serving", "--caches", INT8, "--drafts", "2"),
    "longctx": ("longctx_code_serving", "--caches", INT8),
}
Result = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Name of a run -> its JSON. All runs start at the first call, two at a time."""
    folder = tmp_path_factory.mktemp("smoke")
    pool = ThreadPoolExecutor(2)

    def run(name: str) -> dict[str, Any]:
        script, *flags = RUNS[name]
        out: Path = folder / f"{name}.json"
        done = subprocess.run(
            [sys.executable, "-m", f"scripts.{script}", "--smoke", "--fresh", "--out", str(out)]
            + flags,
            cwd=ROOT,
            env=os.environ | {"DEVICE": "cpu"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return json.loads(out.read_text()) | {"printed": done.stdout}

    started: dict[str, Future[dict[str, Any]]] = {}

    def result(name: str) -> dict[str, Any]:
        if not started:
            started.update({each: pool.submit(run, each) for each in RUNS})
        return started[name].result()

    return result
