"""Options and fixtures shared by all tests."""

from __future__ import annotations

import signal

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="run the tests that need a GPU")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--gpu"):
        return
    skip = pytest.mark.skip(reason="needs a GPU: run with --gpu (make test-gpu)")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """A shell starts what it runs in the background deaf to Ctrl-C: commands under test are not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
