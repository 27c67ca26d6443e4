"""A pytest plugin for the release's own test files, loaded with `-p` in their process.

UPSTREAM_EXCEPT is a JSON list of [path, beginning of a test's name]; UPSTREAM_SAMPLED a JSON object
of path: n, of which every n-th case is left; UPSTREAM_PART, "2/5" for example, leaves the third of
every five cases; UPSTREAM_REPORT is the file that gets what happened,
every second or two, so that a process that is ended leaves what it had done.
"""

import gc
import json
import os
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

# The modules of the per-token-head formats skip themselves on a CPU; interpreted kernels run them.
LIFTED = "Per-token-head KV cache tests require GPU."

matched: set[tuple[str, str]] = set()
exceptions = [(path, name) for path, name in json.loads(os.environ["UPSTREAM_EXCEPT"])]
sampled: dict[str, int] = json.loads(os.environ.get("UPSTREAM_SAMPLED", "{}"))
outcomes: dict[str, Counter[str]] = defaultdict(Counter)
failed: set[str] = set()
passed: set[str] = set()

# Seconds between two writings of the report, and bytes that a process may keep on a GPU.
WRITE_S = 1.0
KEPT_BYTES = 4 << 30
_written = time.monotonic()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = []
    seen: Counter[str] = Counter()
    for item in items:
        path, _, name = item.nodeid.partition("::")
        hits = {one for one in exceptions if one[0] == path and name.startswith(one[1])}
        matched.update(hits)
        if hits:
            continue
        seen[path] += 1
        if (seen[path] - 1) % sampled.get(path, 1):
            continue
        kept.append(item)
        # The release collects garbage and tears its process groups down after every test: nothing
        # here leaves any, and it takes longer than the tests.
        item.add_marker("skip_global_cleanup")
        for node in item.listchain():
            node.own_markers = [
                mark for mark in node.own_markers if mark.kwargs.get("reason") != LIFTED
            ]
    number, _, parts = os.environ.get("UPSTREAM_PART", "0/1").partition("/")
    kept = kept[int(number) :: int(parts)]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = report.nodeid.partition("::")[0]
    if report.when == "call" or report.outcome != "passed":
        outcomes[path][report.outcome] += 1
    if report.outcome == "failed":
        failed.add(report.nodeid)
    if report.when == "teardown":
        if report.nodeid not in failed:
            passed.add(report.nodeid)
        if time.monotonic() - _written > WRITE_S:
            write(ended=False)


def pytest_runtest_logfinish() -> None:
    """The release's cleanup is left out; others use the same GPU."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda and cuda.is_initialized() and cuda.memory_reserved() > KEPT_BYTES:
        gc.collect()
        cuda.empty_cache()


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that can't be imported has no tests, and yet it fails."""
    if report.outcome == "failed":
        outcomes[report.nodeid.partition("::")[0]]["failed"] += 1
        failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    write(ended=True)


def write(ended: bool) -> None:
    """What happened so far, in one step."""
    global _written
    report = {
        "outcomes": outcomes,
        "failed": sorted(failed),
        "passed": sorted(passed),
        "absent": [list(one) for one in exceptions if one not in matched],
        "ended": ended,
    }
    path = Path(os.environ["UPSTREAM_REPORT"])
    part = path.with_suffix(".part")
    part.write_text(json.dumps(report))
    part.replace(path)
    _written = time.monotonic()
