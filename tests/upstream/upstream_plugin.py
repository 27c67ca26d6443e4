"""A pytest plugin for the release's own test files, loaded with `-p` in their process.

UPSTREAM_EXCEPT is a JSON list of [path, beginning of a test's name]; UPSTREAM_REPORT is the file
that gets what happened.
"""

import json
import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest

# The modules of the per-token-head formats skip themselves on a CPU; interpreted kernels run them.
LIFTED = "Per-token-head KV cache tests require GPU."

matched: set[tuple[str, str]] = set()
exceptions = [(path, name) for path, name in json.loads(os.environ["UPSTREAM_EXCEPT"])]
outcomes: dict[str, Counter[str]] = defaultdict(Counter)
failed: set[str] = set()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = []
    for item in items:
        path, _, name = item.nodeid.partition("::")
        hits = {one for one in exceptions if one[0] == path and name.startswith(one[1])}
        matched.update(hits)
        if hits:
            continue
        kept.append(item)
        # The release collects garbage and tears its process groups down after every test: nothing
        # here leaves any, and it takes longer than the tests.
        item.add_marker("skip_global_cleanup")
        for node in item.listchain():
            node.own_markers = [
                mark for mark in node.own_markers if mark.kwargs.get("reason") != LIFTED
            ]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = report.nodeid.partition("::")[0]
    if report.when == "call" or report.outcome != "passed":
        outcomes[path][report.outcome] += 1
    if report.outcome == "failed":
        failed.add(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that can't be imported has no tests, and yet it fails."""
    if report.outcome == "failed":
        outcomes[report.nodeid.partition("::")[0]]["failed"] += 1
        failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    absent = [list(one) for one in exceptions if one not in matched]
    report = {"outcomes": outcomes, "failed": sorted(failed), "absent": absent}
    Path(os.environ["UPSTREAM_REPORT"]).write_text(json.dumps(report))
