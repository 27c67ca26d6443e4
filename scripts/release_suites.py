"""The release's own test suites of what the series touches, before and after it: no new failure.

tests/v1/core, tests/v1/attention and the Triton and cache tests of tests/kernels/attention, each
file in processes of its own: on the plain base in a scratch tree, then on the patched one. With
--jobs, groups of small files and parts of the large ones run side by side; a case that then fails
with the series alone is run again on both trees with nothing beside it, and only that counts.
Without a GPU kernels are interpreted, and what needs one fails on both sides; `--smoke` runs a few
tests of one file so.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from scripts.common import BASE_VERSION, ROOT, VLLM, WORK, Failure, git, main
from scripts.harness import gpu, options, show
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
# Large files, and into how many processes --jobs divides them. They come after the others, in this
# order: what a budget cuts is what the series touches least.
PARTS = {
    "tests/v1/core/test_scheduler.py": 2,
    "tests/v1/attention/test_attention_backends.py": 3,
    "tests/kernels/attention/test_triton_unified_attention.py": 8,
    "tests/kernels/attention/test_cache.py": 8,
    "tests/v1/attention/test_sparse_mla_backends.py": 3,
    "tests/v1/attention/test_mla_backends.py": 6,
    "tests/kernels/attention/test_prefix_prefill.py": 6,
    "tests/kernels/attention/test_merge_attn_states.py": 4,
}
SMOKE = ("tests/v1/core/test_kv_cache_utils.py",)
SMOKE_SELECT = "test_kv_cache_block"
BEFORE, AFTER = "before", "after"
_RUNNER = ROOT / "tests" / "upstream" / "release.py"
# A file that hangs must not take the others' time.
_LIMIT_S = 3600
_KEPT = 4000
# No process is started for less.
_LEAST_S = 15
# So many cases of a file are run again.
_AGAIN = 40
# Small files share a process, most of whose time the imports take: at most so many.
_GROUP = 8


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


def outcome(
    tree: Path,
    path: str,
    native: bool,
    select: str = "",
    *,
    part: str = "0/1",
    limit_s: float = _LIMIT_S,
    cases: list[str] | None = None,
) -> dict[str, Any] | None:
    """Counts, failed and passed cases of one file, None where the tree has none.

    part: "2/5" is the third of every five cases; limit_s: of the process; cases: these alone, by
    name. A process that crashes counts as one failure; of one that the limit ends (`cut`) counts
    what it had done.
    """
    if not (tree / path).exists():
        return None
    found = _process(tree, cases or [path], native, select, part, limit_s)
    if isinstance(found, str):
        return _side({"failed": 1}, [f"{path} (the process)"], [], found, False)
    return _of_file(found, path, found.get("cut", False))


def outcomes(
    tree: Path, paths: list[str], native: bool, select: str = "", *, limit_s: float = _LIMIT_S
) -> dict[str, dict[str, Any] | None]:
    """`outcome` of each of some files, which share a process until one of them crashes it."""
    there = [path for path in paths if (tree / path).exists()]
    ends = time.monotonic() + limit_s
    found = _process(tree, there, native, select, "0/1", limit_s) if there else ""
    if isinstance(found, str) or not (found["ended"] or found["cut"]):
        return {
            path: outcome(tree, path, native, select, limit_s=left_s)
            if (left_s := ends - time.monotonic()) > _LEAST_S or path not in there
            else untouched()
            for path in paths
        }
    # They run in order: of those before the last one that was begun nothing is missing.
    begun = [path for path in there if found["outcomes"].get(path)]
    done = set(there if not found["cut"] else there[: there.index(begun[-1])] if begun else [])
    return {
        path: _of_file(found, path, path not in done) if path in there else None for path in paths
    }


def _process(
    tree: Path, names: list[str], native: bool, select: str, part: str, limit_s: float
) -> dict[str, Any] | str:
    """What one process says of files or cases (see tests/upstream/release.py); else its output."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, str(_RUNNER), str(tree), str(report), *names]
        command += ["--part", part, "--limit", str(limit_s)]
        command += ["--native"] if native else []
        command += ["--select", select] if select else []
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        return json.loads(report.read_text(encoding="utf-8")) if report.exists() else done.stdout


def _of_file(found: dict[str, Any], path: str, cut: bool) -> dict[str, Any]:
    def own(cases: list[str]) -> list[str]:
        return [case for case in cases if re.split(r"::| \(", case)[0] == path]

    failed = own(found.get("failed", []))
    said = found["output"] if failed else ""
    return _side(found["outcomes"].get(path, {}), failed, own(found.get("passed", [])), said, cut)


def plain(text: str) -> str:
    """Output without the machine's folders: a path begins at the last of those named here."""
    return re.sub(
        r"/[\w./+-]*/(?=(?:site-packages|tests|vllm|importlib|scripts)/)|/tmp/[\w./-]+", "", text
    )


def _side(
    counts: dict[str, int], failed: list[str], passed: list[str], output: str, cut: bool
) -> dict[str, Any]:
    said = plain(output[-_KEPT:])
    return {"counts": counts, "failed": failed, "passed": passed, "cut": cut, "output": said}


def untouched() -> dict[str, Any]:
    """Of a part for which no time was left."""
    return _side({}, [], [], "", True)


def joined(parts: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    """One side of a file from the outcomes of its parts."""
    there = [part for part in parts if part]
    if not there:
        return None
    counts: Counter[str] = Counter()
    for part in there:
        counts.update(part["counts"])
    return _side(
        dict(counts),
        sorted({case for part in there for case in part["failed"]}),
        sorted({case for part in there for case in part["passed"]}),
        "\n".join(part["output"] for part in there if part["output"])[-_KEPT:],
        any(part["cut"] for part in there),
    )


def compared(before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    """One file's cell: both sides, and the cases that fail only with the series, or no longer.

    not_compared: failures with the series of cases that the base, cut, did not reach.
    """
    old = set(before["failed"]) if before else set()
    new = set(after["failed"]) if after else set()
    only = new - old
    unknown = only - set(before["passed"]) if before and before["cut"] else set()
    mended = old - new if after else set()
    if after and after["cut"]:
        mended &= set(after["passed"])
    return {
        BEFORE: _kept(before),
        AFTER: _kept(after),
        "new_failures": sorted(only - unknown),
        "not_compared": sorted(unknown),
        "mended": sorted(mended),
    }


def _kept(side: dict[str, Any] | None) -> dict[str, Any] | None:
    """A side without the many names of what passed."""
    return side and {key: value for key, value in side.items() if key != "passed"}


def row(path: str, cell: dict[str, Any]) -> list[str]:
    """A row of the table."""
    sides = [_words(cell[side]) for side in (BEFORE, AFTER)]
    return [path, *sides, str(len(cell["new_failures"]) or "none")]


def _words(side: dict[str, Any] | None) -> str:
    if side is None:
        return "not there"
    counts = ", ".join(f"{count} {name}" for name, count in sorted(side["counts"].items()))
    return (counts or "no test") + (" (cut)" if side["cut"] else "")


# What a side of some files, or of a part of one, is run by: (tree, paths, part) -> `outcomes`.
Runner = Callable[[Path, list[str], str], dict[str, dict[str, Any] | None]]


def measure(trees: dict[str, Path], path: str, run_some: Runner) -> dict[str, Any]:
    """Run one file on both trees, one process at a time."""
    return compared(*(run_some(trees[side], [path], "0/1")[path] for side in (BEFORE, AFTER)))


def grouped(paths: list[str], jobs: int) -> list[list[str]]:
    """The files in the order in which they run, as processes share them."""
    place = {path: number for number, path in enumerate(PARTS, 1)}
    small = [path for path in paths if path not in place]
    size = min(max(2 * len(small) // jobs, 1), _GROUP)
    groups = [small[first : first + size] for first in range(0, len(small), size)]
    return groups + [[path] for path in sorted(set(paths) & set(place), key=lambda p: place[p])]


@contextmanager
def side_by_side(
    trees: dict[str, Path], paths: list[str], run_some: Runner, jobs: int
) -> Iterator[dict[str, Callable[[], dict[str, Any]]]]:
    """For each file, in the order in which they run, what waits for its cell.

    `jobs` processes work meanwhile; leaving it starts no further one.
    """
    pool = ThreadPoolExecutor(jobs)
    running: dict[str, dict[str, list[Future[dict[str, dict[str, Any] | None]]]]] = {}
    for group in grouped(paths, jobs):
        parts = PARTS.get(group[0], 1)
        work = {
            side: [
                pool.submit(run_some, trees[side], group, f"{number}/{parts}")
                for number in range(parts)
            ]
            for side in (BEFORE, AFTER)
        }
        running |= {path: work for path in group}

    def cell(path: str) -> dict[str, Any]:
        sides = [[part.result()[path] for part in running[path][side]] for side in (BEFORE, AFTER)]
        return compared(*map(joined, sides))

    try:
        yield {path: partial(cell, path) for path in running}
    finally:
        pool.shutdown(cancel_futures=True)


def again(cell: dict[str, Any], trees: dict[str, Path], path: str, native: bool) -> dict[str, Any]:
    """The cell after its doubtful cases ran once more on both trees, with nothing beside them.

    Those that pass then, or that the base shares, are `unsteady`.
    """
    doubtful = cell["new_failures"] + cell["not_compared"]
    cases = [case for case in doubtful if "::" in case][:_AGAIN]
    if not cases:
        return cell
    sides = [outcome(trees[side], path, native, cases=cases) for side in (BEFORE, AFTER)]
    found = compared(*sides)
    still = set(found["new_failures"])
    return cell | {
        "new_failures": sorted(set(cell["new_failures"]) - set(cases) | still),
        "not_compared": sorted(set(cell["not_compared"]) - set(cases)),
        "unsteady": sorted(set(cases) - still),
        "again": {side: found[side] for side in (BEFORE, AFTER)},
    }


def run() -> int:
    parser = options.parser(NAME, __doc__)
    parser.add_argument("--files", nargs="+", metavar="GLOB", help="other files of the release")
    parser.add_argument("--select", default="", metavar="EXPRESSION", help="pytest's -k")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="processes at a time (default 1)"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=_LIMIT_S,
        metavar="SECONDS",
        help=f"of a process; what it had done by then counts (default {_LIMIT_S})",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=float("inf"),
        metavar="SECONDS",
        help="of all processes together; what isn't done by then is cut",
    )
    parsed = parser.parse_args()
    patterns = parsed.files or (SMOKE if parsed.smoke else SUITES)
    select = parsed.select or (SMOKE_SELECT if parsed.smoke and not parsed.files else "")
    settings = {"files": list(patterns), "select": select, "limit": parsed.limit}
    if parsed.budget != float("inf"):
        settings["budget"] = parsed.budget
    with Run(NAME, parsed, settings=settings, timed=False, gpus=len(gpu.visible())) as running:
        base = WORK / "release-suites" / "base"
        scratch.checked_out(BASE_VERSION, base)
        check.lend_binaries(base)
        trees = {BEFORE: base, AFTER: VLLM}
        native = bool(running.gpus)

        def run_some(tree: Path, paths: list[str], part: str) -> dict[str, dict[str, Any] | None]:
            left_s = min(parsed.limit, ends - time.monotonic())
            if left_s < _LEAST_S:
                return {path: untouched() if (tree / path).exists() else None for path in paths}
            if len(paths) > 1:
                return outcomes(tree, paths, native, select, limit_s=left_s)
            (path,) = paths
            return {path: outcome(tree, path, native, select, part=part, limit_s=left_s)}

        names = files(patterns, trees)
        ends = time.monotonic() + parsed.budget
        left = [name for name in names if name not in running.cells.values]
        if parsed.jobs == 1:
            for name in running.track(names):
                running.cell(name, partial(measure, trees, name, run_some))
        else:
            with side_by_side(trees, left, run_some, parsed.jobs) as cells:
                for name in running.track(cells):
                    running.cell(name, cells[name])
            running.write(summary(running.cells.values, names))
            for name in [name for name in names if "again" not in running.cells.values[name]]:
                cell = again(running.cells.values[name], trees, name, native)
                running.cells.keep(name, cell)
        values = {name: running.cells.values[name] for name in names}
        found = summary(values, names)
        running.write(found)
    headings = ["file", "v" + BASE_VERSION, "with the series", "new failures"]
    show.table("the release's suites", headings, [row(*item) for item in values.items()])
    for case in found["new_failures"]:
        print(f"new failure: {case}")
    for case in found["not_compared"]:
        print(f"fails, and the base had not reached it: {case}")
    return 1 if found["new_failures"] else 0


def summary(cells: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """What the result tells of all files together."""
    return {
        "files": len(names),
        "new_failures": [case for name in names for case in cells[name]["new_failures"]],
        "not_compared": [case for name in names for case in cells[name]["not_compared"]],
        "cut": [name for name in names if _cut(cells[name])],
    }


def _cut(cell: dict[str, Any]) -> bool:
    return any(cell[side] and cell[side]["cut"] for side in (BEFORE, AFTER))


if __name__ == "__main__":
    main(run)
