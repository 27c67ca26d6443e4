"""Which of the release's test files are run, and how.

`python release.py TREE REPORT FILE...` runs files of a tree for scripts/, without a GPU unless
--native; REPORT gets what run() returns, and `needs_gpu`: the files that were left out for that.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
from contextlib import suppress
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


def sampled() -> dict[str, int]:
    """Files of which every n-th case runs where time is short: path to n."""
    return {entry["path"]: entry["of"] for entry in DATA["sampled"]}


def run(
    paths: list[str],
    folder: Path,
    interpreted: bool,
    tree: Path = VLLM,
    select: str = "",
    part: str = "0/1",
    limit_s: float | None = None,
    sample: bool = False,
) -> dict[str, Any]:
    """Run the files of a tree, or cases by their names, in one process.

    `select` is pytest's -k; `part`: "2/5" runs the third of every five cases; with `sample` some
    files run in part (see `sampled`); after `limit_s` the process is ended. Returns {outcomes:
    counts per file, failed and passed (or skipped): names of cases, absent: names, ended: whether
    pytest came to its end, cut: whether the limit ended it, output: text}; a process that crashed
    is among the failed.
    """
    report = folder / "report.json"
    variables = {
        "HF_HOME": str(hub.write(folder / "hub-cache")),
        "HF_HUB_OFFLINE": "1",
        "UPSTREAM_EXCEPT": json.dumps(exceptions() if interpreted else []),
        "UPSTREAM_REPORT": str(report),
        "UPSTREAM_PART": part,
        "UPSTREAM_SAMPLED": json.dumps(sampled() if sample else {}),
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
    log = folder / "output.txt"
    cut = False
    with log.open("w") as stream:
        process = subprocess.Popen(
            [*command, "--no-header", "--tb=short", *(("-k", select) if select else ()), *paths],
            cwd=tree,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code, cut = 0, True
        finally:
            # What it may have started goes with it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    output = log.read_text(errors="replace")
    if report.exists():
        found = json.loads(report.read_text())
    elif cut:
        found = {"outcomes": {}, "failed": [], "passed": [], "absent": [], "ended": False}
    else:
        raise AssertionError(f"pytest ended with {code} before any test:\n{output[-8000:]}")
    if not (found["ended"] or cut):
        path = paths[0].partition("::")[0]
        found["failed"].append(f"{path} (the process)")
        counts = found["outcomes"].setdefault(path, {})
        counts["failed"] = counts.get("failed", 0) + 1
    return found | {"cut": cut, "output": output}


def main() -> None:
    """Run files of another tree for scripts.series."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--native", action="store_true", help="on a GPU, every test")
    parser.add_argument("--select", default="", help="pytest's -k")
    parser.add_argument("--part", default="0/1", help="2/5: the third of every five cases")
    parser.add_argument("--limit", type=float, help="seconds after which the process is ended")
    parser.add_argument("--sample", action="store_true", help="some files in part: upstream.toml")
    arguments = parser.parse_args()
    # Then run() ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
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
                part=arguments.part,
                limit_s=arguments.limit,
                sample=arguments.sample,
            )
    arguments.report.write_text(json.dumps(outcome | {"needs_gpu": needs_gpu}))


if __name__ == "__main__":
    main()
