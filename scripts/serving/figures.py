"""A cell's figures as a table, and as ratios to those of the first format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Cells = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Figure:
    """One figure of every cell.

    path: its keys in the cell, joined by dots; form: how it is written; compared: whether its ratio
    between two formats says something.
    """

    heading: str
    path: str
    form: str = ".2f"
    compared: bool = True

    def of(self, cell: dict[str, Any]) -> float:
        value: Any = cell
        for key in self.path.split("."):
            value = value[key]
        return value


def summary(cells: Cells, figures: Iterable[Figure]) -> dict[str, Any]:
    """{"reference": the first cell's name, "ratio": {another's: {path: its figure over that}}}.

    A figure that is nothing in the first cell has no ratio.
    """
    reference, *others = cells
    compared = [figure for figure in figures if figure.compared and figure.of(cells[reference])]
    return {
        "reference": reference,
        "ratio": {
            name: {
                figure.path: figure.of(cells[name]) / figure.of(cells[reference])
                for figure in compared
            }
            for name in others
        },
    }


def table(cells: Cells, figures: Sequence[Figure]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: each cell's figures, then the ratios."""
    told = summary(cells, figures)
    rows = [
        [name, *(format(figure.of(cell), figure.form) for figure in figures)]
        for name, cell in cells.items()
    ]
    for name, ratios in told["ratio"].items():
        written = [f"{ratios[one.path]:.3f}" if one.path in ratios else "-" for one in figures]
        rows.append([f"{name}, over {told['reference']}", *written])
    return ["cache", *(figure.heading for figure in figures)], rows
