"""The engine under test, shared by all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import random_llama
from engine_client import Engine


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_llama.write(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="session")
def int8(checkpoint: Path) -> Iterator[Engine]:
    """One engine with an INT8 cache for all tests."""
    engine = Engine(checkpoint, "int8_per_token_head", checkpoint / "int8.log")
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def int4(checkpoint: Path) -> Iterator[Engine]:
    """One engine with an INT4 cache."""
    engine = Engine(checkpoint, "int4_per_token_head", checkpoint / "int4.log")
    yield engine
    engine.close()
