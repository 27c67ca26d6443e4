"""Which of the release's test files are run, and how."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import hub
from interpreted_platform import environment

from scripts.common import VLLM, series

HERE = Path(__file__).parent
DATA = tomllib.loads((HERE / "upstream.toml").read_text())
GPU_FILES = {entry["path"] for entry in DATA["gpu_file"]}
TOUCHED = re.compile(r"^\+\+\+ b/(tests/\S*/test_\w+\.py)$", re.MULTILINE)


def carried() -> set[str]:
    """The test files that the series' patches touch."""
    return {path for patch in series() for path in TOUCHED.findall(patch.read_text())}


def files() -> list[str]:
    """The files that run without a GPU: those of upstream.toml and those that the patches carry."""
    return sorted({entry["path"] for entry in DATA["file"]} | carried() - GPU_FILES)


def native_files() -> list[str]:
    """The files that run on a GPU: also those of the patches that run nowhere else."""
    return sorted({*files(), *carried()})


def exceptions() -> list[tuple[str, str]]:
    """(path, beginning of a test's name) of what needs a GPU or a network."""
    return [
        (entry["path"], name)
        for entry in DATA["file"]
        for group in entry.get("except", [])
        for name in group["tests"]
    ]


def run(paths: list[str], folder: Path, interpreted: bool) -> dict[str, Any]:
    """Run the files in one process; return {outcomes: per file, absent: names, output: text}."""
    report = folder / "report.json"
    variables = {
        "HF_HOME": str(hub.write(folder / "hub-cache")),
        "HF_HUB_OFFLINE": "1",
        "UPSTREAM_EXCEPT": json.dumps(exceptions() if interpreted else []),
        "UPSTREAM_REPORT": str(report),
        "PYTHONPATH": str(HERE),
    }
    if interpreted:
        variables |= environment()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "upstream_plugin",
        "-p",
        "no:cacheprovider",
        "-q",
    ]
    done = subprocess.run(
        [*command, "--no-header", "--tb=short", *paths],
        cwd=VLLM,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    output = done.stdout + done.stderr
    if not report.exists():
        raise AssertionError(
            f"pytest ended with {done.returncode} before any test:\n{output[-8000:]}"
        )
    return json.loads(report.read_text()) | {"output": output}
