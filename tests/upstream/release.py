"""Which of the release's test files are run, and how.

`python release.py TREE REPORT FILE...` runs files of a tree for scripts/, without a GPU unless
--native; REPORT gets what run() returns, and `needs_gpu`: the files that were left out for that.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import hub
from interpreted_platform import environment

from scripts.common import VLLM, series
from scripts.series.patchfile import carried_tests

HERE = Path(__file__).parent
DATA = tomllib.loads((HERE / "upstream.toml").read_text())
GPU_FILES = {entry["path"] for entry in DATA["gpu_file"]}


def carried() -> set[str]:
    """The test files that the series' patches touch."""
    return {path for patch in series() for path in carried_tests(patch)}


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


def run(
    paths: list[str], folder: Path, interpreted: bool, tree: Path = VLLM, select: str = ""
) -> dict[str, Any]:
    """Run the files of a tree in one process.

    `select` is pytest's -k. Returns {outcomes: counts per file, failed: names of cases,
    absent: names, output: text}.
    """
    report = folder / "report.json"
    variables = {
        "HF_HOME": str(hub.write(folder / "hub-cache")),
        "HF_HUB_OFFLINE": "1",
        "UPSTREAM_EXCEPT": json.dumps(exceptions() if interpreted else []),
        "UPSTREAM_REPORT": str(report),
        # Before the environment's own path, which leads to vllm/.
        "PYTHONPATH": os.pathsep.join([str(HERE), str(tree)]),
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
        [*command, "--no-header", "--tb=short", *(("-k", select) if select else ()), *paths],
        cwd=tree,
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


def main() -> None:
    """Run files of another tree for scripts.series."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--native", action="store_true", help="on a GPU, every test")
    parser.add_argument("--select", default="", help="pytest's -k")
    arguments = parser.parse_args()
    out = set() if arguments.native else GPU_FILES
    needs_gpu = [path for path in arguments.paths if path in out]
    left = [path for path in arguments.paths if path not in out]
    outcome: dict[str, Any] = {"outcomes": {}, "output": ""}
    if left:
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(
                left,
                Path(folder),
                interpreted=not arguments.native,
                tree=arguments.tree.resolve(),
                select=arguments.select,
            )
    arguments.report.write_text(json.dumps(outcome | {"needs_gpu": needs_gpu}))


if __name__ == "__main__":
    main()
