"""The plots, as SVG files that are the same bytes for the same results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

from scripts.attention.shapes import formats, geometry  # noqa: E402

STYLE: Any = {
    "svg.hashsalt": "quant-kv",
    "svg.fonttype": "none",
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
}
Cells = dict[str, Any]


@contextmanager
def figure(path: Path, width: float = 7, height: float = 4) -> Iterator[Any]:
    """Axes; the file is written, in one step, when the block ends."""
    with pyplot.rc_context(STYLE):
        drawn, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
        try:
            yield axes
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.part")
            drawn.savefig(part, format="svg", metadata={"Date": None, "Creator": None})
            os.replace(part, path)
        finally:
            pyplot.close(drawn)


def title_of(name: str) -> str:
    """A format's title, its name where shapes.toml has it no longer."""
    known = formats()
    return known[name].title if name in known else name


def kernel_time(path: Path, cells: Cells, shape: str, kind: str, copy: float | None) -> bool:
    """Time of a layer against context for single requests, one line a format; False: no cells.

    copy: bytes a second of the card's copy; with it, each format's byte floor is drawn.
    """
    chosen = [
        cell
        for cell in cells.values()
        if cell.get("geometry") == shape
        and cell.get("kind") == kind
        and cell.get("requests") == 1
        and cell.get("read")
    ]
    if not chosen:
        return False
    with figure(path) as axes:
        for number, name in enumerate(dict.fromkeys(cell["format"] for cell in chosen)):
            line = sorted(
                (cell["context"], cell["read"]) for cell in chosen if cell["format"] == name
            )
            contexts = [context for context, _ in line]
            color = f"C{number}"
            axes.plot(
                contexts, [read["p50"] for _, read in line], "o-", color=color, label=title_of(name)
            )
            if copy and all("bytes" in read for _, read in line):
                floor = [read["bytes"] / copy * 1e6 for _, read in line]
                axes.plot(contexts, floor, ":", color=color, alpha=0.7)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        ticks = sorted({cell["context"] for cell in chosen})
        axes.set_xticks(
            ticks, [f"{tick // 1024}K" if tick >= 1024 else str(tick) for tick in ticks]
        )
        axes.set_xlabel("tokens of context")
        axes.set_ylabel("µs a layer")
        floors = "\ndotted: the bytes of each at the card's copy bandwidth" if copy else ""
        axes.set_title(f"{kind}, one request, {geometry(shape).title}{floors}")
        axes.legend(fontsize=8)
    return True


def capacity(path: Path, cells: Cells, drafters: dict[str, str | None]) -> bool:
    """Tokens held, by model and format, before and after patch 0001; False: nothing to draw.

    drafters: model -> the same model without its drafter; only these are drawn, if there are any.
    """
    shown = {name for pair in drafters.items() if pair[1] for name in pair}
    served = [cell for cell in cells.values() if "unavailable" not in cell]
    chosen = [cell for cell in served if not shown or cell["model"] in shown]
    if not chosen:
        return False
    with figure(path, height=1 + 0.28 * len(chosen)) as axes:
        labels = [f"{cell['title']}, {cell['dtype']}" for cell in chosen]
        for rule, offset in (("before", -0.2), ("after", 0.2)):
            values = [cell["plans"][rule]["tokens"] / 1000 for cell in chosen]
            places = [number + offset for number in range(len(chosen))]
            axes.barh(places, values, height=0.38, label=f"{rule} patch 0001")
        axes.set_yticks(range(len(chosen)), labels)
        axes.invert_yaxis()
        axes.set_xlabel("thousand tokens held in one request")
        axes.legend(fontsize=8)
    return True


def step_times(path: Path, cells: Cells) -> bool:
    """Each step's time while a prompt arrives, one line a cell; False: nothing to draw."""
    chosen = {name: cell for name, cell in cells.items() if cell.get("step_ms")}
    if not chosen:
        return False
    with figure(path) as axes:
        for number, (name, cell) in enumerate(chosen.items()):
            axes.plot(cell["step_ms"], color=f"C{number}", label=name, linewidth=1)
            if cell.get("arrival") is not None:
                axes.axvline(cell["arrival"], color=f"C{number}", linestyle=":", linewidth=1)
        axes.set_yscale("log")
        axes.set_xlabel("step (dotted: the prompt arrives)")
        axes.set_ylabel("ms")
        axes.set_title("Step time while a prompt arrives")
        axes.legend(fontsize=8)
    return True


def quality(path: Path, cells: Cells) -> bool:
    """Mean difference of log-likelihood by position, one line a cell; False: nothing to draw."""
    chosen = {name: cell for name, cell in cells.items() if cell.get("buckets")}
    if not chosen:
        return False
    with figure(path) as axes:
        for name, cell in chosen.items():
            middles = [(bucket["from"] + bucket["to"]) / 2 for bucket in cell["buckets"]]
            axes.plot(
                middles, [bucket["delta_nll"] for bucket in cell["buckets"]], "o-", label=name
            )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xlabel("position in the text, tokens")
        axes.set_ylabel("ΔNLL, nats a token")
        axes.set_title("Quality by position, teacher-forced")
        axes.legend(fontsize=8)
    return True
