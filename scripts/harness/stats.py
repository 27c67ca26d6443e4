"""Medians, spreads, intervals and paired tests, by scipy and numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

CONFIDENCE = 0.95
RESAMPLES = 9999
SEED = 0


def spread(values: Sequence[float]) -> dict[str, float]:
    """p20, p50 and p80 of values, and how many there are."""
    p20, p50, p80 = np.quantile(np.asarray(values, dtype=float), (0.2, 0.5, 0.8))
    return {"p20": float(p20), "p50": float(p50), "p80": float(p80), "n": len(values)}


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Bootstrap interval (BCa) of the median; the value itself twice where all are equal."""
    return _bootstrap(values, np.median, confidence)


def _bootstrap(values: Sequence[float], statistic: Any, confidence: float) -> tuple[float, float]:
    data = np.asarray(values, dtype=float)
    if len(data) < 2 or np.ptp(data) == 0:
        point = float(statistic(data))
        return point, point
    found = stats.bootstrap(
        (data,),
        statistic,
        n_resamples=RESAMPLES,
        confidence_level=confidence,
        method="BCa",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return float(found.low), float(found.high)


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Student's t interval of the mean; the value itself twice where all are equal."""
    data = np.asarray(values, dtype=float)
    if len(data) < 2 or np.ptp(data) == 0:
        return float(data.mean()), float(data.mean())
    low, high = stats.t.interval(confidence, len(data) - 1, data.mean(), stats.sem(data))
    return float(low), float(high)


def mcnemar(lost: int, gained: int) -> float:
    """Exact two-sided McNemar p-value of paired answers.

    lost: right under the first configuration only; gained: under the second only. Without any
    difference there is nothing to test: 1.
    """
    if lost + gained == 0:
        return 1.0
    return float(stats.binomtest(lost, lost + gained, 0.5).pvalue)


def rate_interval(hits: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson interval of a rate such as pass@1."""
    found = stats.binomtest(hits, total).proportion_ci(confidence, method="wilson")
    return float(found.low), float(found.high)
