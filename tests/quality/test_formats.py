"""Cache formats in torch: what comes back of the rows."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.common import ROOT
from scripts.quality.formats import KEY_PER_TOKEN, KIVI, RELEASE_INT4

INT4 = "int4_per_token_head"
NAMES = (
    *("float32", "auto", "int8_per_token_head", INT4, RELEASE_INT4, KIVI, KEY_PER_TOKEN),
    "int5_per_token_head",
)


@pytest.fixture(scope="module")
def errors() -> dict[str, Any]:
    script = Path(__file__).with_name("format_errors.py")
    done = subprocess.run(
        [sys.executable, str(script), *NAMES],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_plain_cache_gives_back_what_it_got(errors: dict[str, Any]) -> None:
    assert set(errors["float32"].values()) == set(errors["auto"].values()) == {0.0}


def test_int8_is_within_half_a_step(errors: dict[str, Any]) -> None:
    # Uniform error of a step of absmax / 127, over noise of deviation 1 whose absmax is about 2.5.
    assert 0.003 < errors["int8_per_token_head"]["noise"] < 0.01
    assert errors["int8_per_token_head"]["one_hot"] < 1e-6
    assert errors["int8_per_token_head"]["zero"] == 0


def test_the_releases_int4_collapses_where_a_row_does_not_span_zero(errors: dict[str, Any]) -> None:
    assert 0.05 < errors[RELEASE_INT4]["noise"] < 0.15
    # 2 in one channel comes back as 1.5e-5: rotated, all channels are equal in size.
    assert errors[RELEASE_INT4]["outlier"] > 0.3
    assert errors[RELEASE_INT4]["one_hot"] > 0.99


def test_the_series_int4_keeps_such_rows(errors: dict[str, Any]) -> None:
    assert 0.05 < errors[INT4]["noise"] < 0.15
    assert errors[INT4]["outlier"] < 0.02
    assert errors[INT4]["one_hot"] < 1e-3
    assert errors[INT4]["zero"] == 0


def test_kivi_isolates_a_channel_of_outliers_in_k_alone(errors: dict[str, Any]) -> None:
    """40 rows: two whole groups. V, and K per token, share its scale with 15 channels."""
    assert 0.05 < errors[KIVI]["noise"] < 0.12
    assert errors[KIVI]["zero"] == errors[KEY_PER_TOKEN]["zero"] == 0
    assert errors[KIVI]["key outlier"] < 0.1 < 0.2 < errors[KEY_PER_TOKEN]["key outlier"]


def test_an_unknown_format_is_refused_with_the_known_ones(errors: dict[str, Any]) -> None:
    assert "int8_per_token_head" in errors["int5_per_token_head"]
