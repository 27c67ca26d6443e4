"""How far K and V are from what a cache format gives back, on a model's own activations: a worker.

The model runs in torch with a plain cache, and each layer's rows, as they reach the cache, go
through every format: all formats are told of the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scripts.quality.formats import round_trip
from scripts.quality.torch_route import load, score
from scripts.serving import child

if TYPE_CHECKING:
    import torch


class Errors:
    """Squares of the errors and of the rows, of K and V in each layer."""

    def __init__(self, layers: int) -> None:
        self.squares = [[[0.0, 0.0] for _ in range(layers)] for _ in "kv"]

    def add(self, layer: int, rows: tuple[torch.Tensor, ...], back: tuple[Any, ...]) -> None:
        """Count what came back of a layer's K and V."""
        for squares, right, got in zip(self.squares, rows, back, strict=True):
            squares[layer][0] += float((got.double() - right.double()).square().sum())
            squares[layer][1] += float(right.double().square().sum())

    def record(self) -> dict[str, Any]:
        """Relative errors, in all and by layer: norm of the errors over norm of the rows."""
        told: dict[str, Any] = {}
        for name, squares in zip(("key", "value"), self.squares, strict=True):
            error, size = (sum(column) for column in zip(*squares, strict=True))
            told[name] = (error / size) ** 0.5
            told[f"{name}_by_layer"] = [(error / size) ** 0.5 for error, size in squares]
        return told


def measure(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Format -> errors of its K and V.

    job: model (folder), caches (see formats.round_trip), dtype of the rows that reach the cache,
    windows: token ids.
    """
    import torch

    dtype = getattr(torch, job["dtype"])
    trips = {name: round_trip(name, dtype) for name in job["caches"]}
    plain = round_trip("auto", dtype)
    found: dict[str, Errors] = {}
    calls = 0

    def watched(key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal calls
        rows = plain(key, value)
        for name, trip in trips.items():
            found[name].add(calls % layers, rows, trip(key, value))
        calls += 1
        return rows

    model = load(job["model"], watched, plain)
    layers = model.config.num_hidden_layers
    found |= {name: Errors(layers) for name in trips}
    for done, window in enumerate(job["windows"]):
        child.progress(done, len(job["windows"]))
        score(model, window)
    assert calls == layers * len(job["windows"])
    child.progress(done + 1, done + 1)
    return {name: errors.record() for name, errors in found.items()}


if __name__ == "__main__":
    child.serve(measure)
