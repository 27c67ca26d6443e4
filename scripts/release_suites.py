"""The release's own test suites of what the series touches, before and after it: no new failure.

tests/v1/core, tests/v1/attention and the Triton and cache tests of tests/kernels/attention, each
file in a process of its own: on the plain base in a scratch tree, then on the patched one. Needs a
GPU; `--smoke` runs a few tests of one file over interpreted kernels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from scripts.common import BASE_VERSION, ROOT, VLLM, WORK, Failure, git, main
from scripts.harness import options, show
from scripts.harness.run import Run
from scripts.series import check, scratch

NAME = "release_suites"
SUITES = (
    "tests/v1/core/**/test_*.py",
    "tests/v1/attention/**/test_*.py",
    "tests/kernels/attention/test_*triton*.py",
    "tests/kernels/attention/test_cache*.py",
    "tests/kernels/attention/test_prefix_prefill.py",
    "tests/kernels/attention/test_merge_attn_states.py",
    "tests/quantization/test_per_token_kv_cache.py",
)
SMOKE = ("tests/v1/core/test_kv_cache_utils.py",)
SMOKE_SELECT = "test_kv_cache_block"
BEFORE, AFTER = "before", "after"
_RUNNER = ROOT / "tests" / "upstream" / "release.py"
# A file that hangs must not take the others' time.
_LIMIT_S = 3600
_KEPT = 4000


def files(patterns: tuple[str, ...] | list[str], trees: dict[str, Path]) -> list[str]:
    """The files of either tree that the patterns name. Raises Failure if there are none."""
    globs = [f":(glob){pattern}" for pattern in patterns]
    found = {
        name
        for tree in trees.values()
        for name in git("ls-files", "-z", "--", *globs, cwd=tree).split("\0")
        if name
    }
    if not found:
        raise Failure(f"no test file of the release is named {', '.join(patterns)}")
    return sorted(found)


def outcome(tree: Path, path: str, native: bool, select: str) -> dict[str, Any] | None:
    """Counts and failed cases of one file, None where the tree has none.

    A process that ends without a report (a crash, the time limit) counts as one failure.
    """
    if not (tree / path).exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, str(_RUNNER), str(tree), str(report), path]
        command += ["--native"] if native else []
        command += ["--select", select] if select else []
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return _ended(path, f"no end within {_LIMIT_S} s")
        if not report.exists():
            return _ended(path, done.stdout[-_KEPT:])
        found = json.loads(report.read_text(encoding="utf-8"))
    counts = found["outcomes"].get(path, {})
    said = found["output"][-_KEPT:] if counts.get("failed") else ""
    return {"counts": counts, "failed": found.get("failed", []), "output": said}


def _ended(path: str, output: str) -> dict[str, Any]:
    return {"counts": {"failed": 1}, "failed": [f"{path} (the process)"], "output": output}


def compared(before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    """One file's cell: both sides, and the cases that fail only with the series, or no longer."""
    old = set(before["failed"]) if before else set()
    new = set(after["failed"]) if after else set()
    return {
        BEFORE: before,
        AFTER: after,
        "new_failures": sorted(new - old),
        "mended": sorted(old - new) if after else [],
    }


def row(path: str, cell: dict[str, Any]) -> list[str]:
    """A row of the table."""
    sides = [_words(cell[side]) for side in (BEFORE, AFTER)]
    return [path, *sides, str(len(cell["new_failures"]) or "none")]


def _words(side: dict[str, Any] | None) -> str:
    if side is None:
        return "not there"
    counts = ", ".join(f"{count} {name}" for name, count in sorted(side["counts"].items()))
    return counts or "no test"


def measure(trees: dict[str, Path], path: str, native: bool, select: str) -> dict[str, Any]:
    """Run one file on both trees."""
    return compared(*(outcome(trees[side], path, native, select) for side in (BEFORE, AFTER)))


def run() -> int:
    parser = options.parser(NAME, __doc__)
    parser.add_argument("--files", nargs="+", metavar="GLOB", help="other files of the release")
    parser.add_argument("--select", default="", metavar="EXPRESSION", help="pytest's -k")
    parsed = parser.parse_args()
    patterns = parsed.files or (SMOKE if parsed.smoke else SUITES)
    select = parsed.select or (SMOKE_SELECT if parsed.smoke and not parsed.files else "")
    settings = {"files": list(patterns), "select": select}
    with Run(NAME, parsed, settings=settings) as running:
        base = WORK / "release-suites" / "base"
        scratch.checked_out(BASE_VERSION, base)
        check.lend_binaries(base)
        trees = {BEFORE: base, AFTER: VLLM}
        native = bool(running.gpus)
        cells = {
            path: partial(measure, trees, path, native, select) for path in files(patterns, trees)
        }
        for name in running.track(cells):
            running.cell(name, cells[name])
        values = {name: running.cells.values[name] for name in cells}
        failures = [case for cell in values.values() for case in cell["new_failures"]]
        running.write({"files": len(values), "new_failures": failures})
    headings = ["file", "v" + BASE_VERSION, "with the series", "new failures"]
    show.table("the release's suites", headings, [row(*item) for item in values.items()])
    for case in failures:
        print(f"new failure: {case}")
    return 1 if failures else 0


if __name__ == "__main__":
    main(run)
