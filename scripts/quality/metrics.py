"""How far the log-probabilities under one cache format are from those under another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scripts.harness import stats

# Positions in a window where a bucket starts, in tokens.
EDGES = (0, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


@dataclass(frozen=True)
class Scores:
    """What a model said of the tokens that follow, window by window.

    chosen: float [windows, tokens - 1], log-probability (nats) of the text's own next token.
    top: int [windows, tokens - 1], the most probable next token.
    """

    chosen: np.ndarray
    top: np.ndarray

    def save(self, path: Path) -> None:
        """Write both in one step, as an .npz file."""
        part = path.with_name(f".{path.name}.part")
        with part.open("wb") as stream:
            np.savez(stream, chosen=self.chosen, top=self.top)
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Scores:
        with np.load(path) as stored:
            return cls(stored["chosen"], stored["top"])

    @classmethod
    def joined(cls, parts: list[Scores]) -> Scores:
        """All windows of several texts."""
        return cls(
            np.concatenate([p.chosen for p in parts]), np.concatenate([p.top for p in parts])
        )


def compare(reference: Scores, other: Scores) -> dict[str, Any]:
    """Figures over all tokens; positive delta_nll: the other is worse.

    delta_nll (nats a token) comes with the 95 % t interval of its mean over windows, which are
    the independent samples: neighbouring tokens aren't.
    """
    delta = reference.chosen - other.chosen
    low, high = stats.mean_interval(delta.mean(axis=1))
    return _figures(delta, reference.top == other.top) | {
        "nll": float(-other.chosen.mean()),
        "delta_nll_low": low,
        "delta_nll_high": high,
        "windows": len(delta),
    }


def by_position(reference: Scores, other: Scores) -> list[dict[str, Any]]:
    """The figures of each range of positions: `from` and `to` (exclusive), in tokens.

    Position p is what p + 1 tokens of context say of the next one.
    """
    delta = reference.chosen - other.chosen
    agrees = reference.top == other.top
    length = delta.shape[1]
    starts = [edge for edge in EDGES if edge < length]
    return [
        {"from": start, "to": end} | _figures(delta[:, start:end], agrees[:, start:end])
        for start, end in zip(starts, [*starts[1:], length], strict=True)
    ]


def _figures(delta: np.ndarray, agrees: np.ndarray) -> dict[str, Any]:
    return {
        "delta_nll": float(delta.mean()),
        "mean_abs_dlogp": float(np.abs(delta).mean()),
        "top1_agreement": float(agrees.mean()),
        "n": int(delta.size),
    }
