"""Which steps results/ holds from which card."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scripts.attention import shapes
from scripts.common import Failure
from scripts.report import kernel_benchmark
from scripts.report.load import Result

_CARDS = Path(__file__).with_name("cards.toml")


@dataclass(frozen=True)
class Step:
    """One kind of attention step that ran on a card, over a cache in a format of the series."""

    card: str
    capability: int
    cache: str
    head_size: int
    rows: int
    requests: int
    version: str


def steps(results: Iterable[Result]) -> Iterator[Step]:
    """The steps of all results that a GPU gave, those of the series' own kernels alone.

    Raises Failure for a card whose architecture is not known.
    """
    forms = shapes.formats()
    for result in results:
        card = card_of(result.data)
        if card is None:
            continue
        cells = kernel_benchmark.cells(result.data) if "cases" in result.data else result.cells
        for cell in cells.values():
            form = forms.get(cell.get("format", "")) if isinstance(cell, dict) else None
            if form is None or not form.fused or "read" not in cell:
                continue
            geometry = shapes.geometry(cell["geometry"])
            batch = shapes.batch(cell["batch"])
            group = geometry.num_heads // geometry.num_kv_heads
            yield Step(
                card,
                capability_of(card, result.data),
                form.cache,
                geometry.head_size,
                group * max(batch.query_lens),
                len(batch.query_lens),
                version_of(result.data),
            )


def card_of(data: dict[str, Any]) -> str | None:
    """The name of the card behind a result, None for a CPU."""
    gpus = (data.get("environment") or {}).get("gpus")
    name = gpus[0]["name"] if gpus else data.get("gpu")
    return name.partition(",")[0].removeprefix("NVIDIA ") if name else None


def capability_of(card: str, data: dict[str, Any]) -> int:
    """Compute capability times ten: as the result says, else by the card's name."""
    for gpu in (data.get("environment") or {}).get("gpus", []):
        if gpu.get("capability"):
            return int(gpu["capability"])
    for name, capability in _cards().items():
        if name in card:
            return capability
    raise Failure(f"results/ has a card of unknown architecture, {card}: add it to {_CARDS.name}")


def version_of(data: dict[str, Any]) -> str:
    """The release that a result was measured on."""
    versions = (data.get("environment") or {}).get("versions") or data.get("versions") or data
    return str(versions.get("vllm", "")).split(" ")[0].partition("+")[0]


@cache
def _cards() -> dict[str, int]:
    with _CARDS.open("rb") as stream:
        return tomllib.load(stream)
