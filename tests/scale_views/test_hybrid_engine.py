"""A hybrid model in the whole engine: attention layers and recurrent states share one buffer.

Stock v0.31.0 wrote 1.0 to all places of scales when an attention layer made its views, in the first
forward of the first request, over the states that the layers before it had just stored.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from interpreted_platform import environment

SCRIPT = Path(__file__).with_name("play_rounds.py")


NATIVE = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(
    scope="module", params=["interpreted", pytest.param("native", marks=pytest.mark.gpu)]
)
def rounds(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("tiny-hybrid")
    variables = NATIVE if request.param == "native" else environment()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), "int8_per_token_head"],
        env=os.environ | variables | {"VLLM_LOGGING_LEVEL": "WARNING"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"the engine died:\n{done.stderr[-4000:]}"
    return json.loads(done.stdout)


@pytest.mark.parametrize("later", ["second", "poisoned"])
def test_the_first_requests_after_the_start_equal_later_ones(
    rounds: dict[str, Any], later: str
) -> None:
    assert rounds["first"] == rounds[later]
