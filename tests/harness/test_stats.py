"""The statistics against scipy, numpy and exact counts."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from scripts.harness import stats

VALUES = st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=40)


@given(VALUES)
def test_spread_is_numpys_quantiles(values: list[float]) -> None:
    found = stats.spread(values)
    assert found["n"] == len(values)
    assert found["p50"] == pytest.approx(np.median(values))
    assert [found["p20"], found["p80"]] == pytest.approx(list(np.quantile(values, [0.2, 0.8])))


def test_the_medians_interval_is_scipys_and_repeats() -> None:
    values = list(np.random.default_rng(1).lognormal(size=25))
    expected = scipy_stats.bootstrap(
        (np.array(values),),
        np.median,
        n_resamples=stats.RESAMPLES,
        method="BCa",
        rng=np.random.default_rng(stats.SEED),
    ).confidence_interval
    assert stats.median_interval(values) == pytest.approx((expected.low, expected.high))
    assert stats.median_interval(values) == stats.median_interval(values)
    low, high = stats.median_interval(values)
    assert low < np.median(values) < high


def test_the_means_interval_is_students() -> None:
    values = [3.0, 5.0, 4.0, 9.0, 1.0]
    expected = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert stats.mean_interval(values, 0.9) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("interval", [stats.median_interval, stats.mean_interval])
@pytest.mark.parametrize("values", [[7.0], [7.0, 7.0, 7.0]])
def test_values_without_spread_have_a_point(interval, values: list[float]) -> None:  # noqa: ANN001
    assert interval(values) == (7.0, 7.0)


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_exact_two_sided_binomial(lost: int, gained: int) -> None:
    total, least = lost + gained, min(lost, gained)
    tail = sum(comb(total, k) for k in range(least + 1)) / 2**total
    assert stats.mcnemar(lost, gained) == pytest.approx(min(1.0, 2 * tail))
    assert stats.mcnemar(lost, gained) == stats.mcnemar(gained, lost)


def test_a_rates_interval_is_wilsons() -> None:
    low, high = stats.rate_interval(80, 164)
    z, n, p = scipy_stats.norm.ppf(0.975), 164, 80 / 164
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5 / (1 + z * z / n)
    assert (low, high) == pytest.approx((middle - half, middle + half))
