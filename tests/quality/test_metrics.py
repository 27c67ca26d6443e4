"""The figures against numpy and scipy."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from scripts.quality import metrics, tasks
from scripts.quality.metrics import Scores

WINDOWS, LENGTH = 7, 300


def scores(seed: int) -> Scores:
    random = np.random.default_rng(seed)
    chosen = -random.exponential(size=(WINDOWS, LENGTH)).astype(np.float32)
    return Scores(chosen, random.integers(0, 3, (WINDOWS, LENGTH)).astype(np.int32))


def test_the_figures_equal_their_definitions() -> None:
    a, b = scores(1), scores(2)
    found = metrics.compare(a, b)
    delta = a.chosen.astype(float) - b.chosen
    assert found["nll"] == pytest.approx(-b.chosen.mean())
    assert found["delta_nll"] == pytest.approx(b.chosen.mean() * -1 + a.chosen.mean(), abs=1e-6)
    assert found["mean_abs_dlogp"] == pytest.approx(np.abs(delta).mean())
    assert found["top1_agreement"] == np.mean(a.top == b.top)
    assert found["n"] == WINDOWS * LENGTH
    by_window = delta.mean(axis=1)
    low, high = scipy_stats.ttest_1samp(by_window, 0).confidence_interval(0.95)
    assert (found["delta_nll_low"], found["delta_nll_high"]) == pytest.approx((low, high))


def test_worse_predictions_make_the_loss_grow() -> None:
    a = scores(1)
    worse = Scores(a.chosen - 0.25, a.top)
    assert metrics.compare(a, worse)["delta_nll"] == pytest.approx(0.25, abs=1e-6)
    assert metrics.compare(a, worse)["top1_agreement"] == 1


def test_the_buckets_part_the_positions() -> None:
    a, b = scores(1), scores(2)
    buckets = metrics.by_position(a, b)
    assert [(one["from"], one["to"]) for one in buckets] == [(0, 64), (64, 256), (256, LENGTH)]
    assert sum(one["n"] for one in buckets) == WINDOWS * LENGTH
    middle = np.abs(a.chosen - b.chosen)[:, 64:256].mean()
    assert buckets[1]["mean_abs_dlogp"] == pytest.approx(middle)
    whole = metrics.compare(a, b)["delta_nll"]
    assert sum(one["delta_nll"] * one["n"] for one in buckets) / (WINDOWS * LENGTH) == (
        pytest.approx(whole, abs=1e-6)
    )


def test_scores_come_back_from_disk_whole(tmp_path: Path) -> None:
    a = scores(1)
    a.save(tmp_path / "a.npz")
    back = Scores.load(tmp_path / "a.npz")
    assert np.array_equal(back.chosen, a.chosen) and np.array_equal(back.top, a.top)
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]
    assert Scores.joined([a, back]).chosen.shape == (2 * WINDOWS, LENGTH)


def verdicts(right: str, truncated: str = "") -> dict[str, dict[str, object]]:
    """Question number -> verdict; `right` is a digit each, `truncated` the numbers cut off."""
    return {
        str(i): tasks.Answer(one == "1", str(i) in truncated).record()
        for i, one in enumerate(right)
    }


def test_lost_and_gained_and_their_p_value() -> None:
    found = tasks.paired(verdicts("11111110"), verdicts("00000011"))
    assert (found["n"], found["lost"], found["gained"], found["right"]) == (8, 6, 1, 2)
    assert found["gained_questions"] == ["7"]
    # Both tails of 7 fair coins that show 6 heads or more.
    assert found["p_value"] == pytest.approx(2 * (7 + 1) / 2**7)


def test_a_truncated_answer_counts_on_neither_side() -> None:
    found = tasks.paired(verdicts("1110", truncated="0"), verdicts("0011", truncated="1"))
    assert (found["n"], found["lost"], found["gained"]) == (2, 0, 1)
    assert found["truncated"] == 2
    assert (found["truncated_reference"], found["truncated_this"]) == (1, 1)


def test_equal_answers_prove_no_difference() -> None:
    assert tasks.paired(verdicts("101"), verdicts("101"))["p_value"] == 1
