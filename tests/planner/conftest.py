"""The planner's tests run the release's planner; tables of the files they need, and a stand-in."""

from __future__ import annotations

import logging

import pytest

from scripts.plan import planner


@pytest.fixture(scope="session", autouse=True)
def quiet() -> None:
    """Both planners warn about every padding layer: thousands of lines in the property tests."""
    for module in (planner.before(), planner.after()):
        module.logger.setLevel(logging.ERROR)
