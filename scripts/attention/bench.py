"""What the kernel benches share: their cells, the gate before any time, bandwidth, tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from scripts.attention.shapes import Batch, Format, Geometry, batch, batches, format_named, geometry
from scripts.harness import timing
from scripts.harness.run import Run

DEFAULT_GEOMETRIES = ("qwen3.6-27b", "laguna-xs")
COPY = "copy"


def shapes(parsed: argparse.Namespace, kinds: tuple[str, ...]) -> list[tuple[Geometry, Batch]]:
    """The geometries and batches that the flags name, else the default ones of these kinds."""
    names = parsed.geometry or (["tiny"] if parsed.smoke else DEFAULT_GEOMETRIES)
    usual = batches("smoke") if parsed.smoke else [spec for kind in kinds for spec in batches(kind)]
    made = [batch(spec) for spec in dict.fromkeys(parsed.batch or usual)]
    if parsed.smoke and not parsed.batch:
        # Any batch has tokens to store.
        made = [one for one in made if one.kind in kinds or "store" in kinds]
    return [(geometry(name), one) for name in names for one in made]


def device(run: Run) -> Any:
    """Where the run's steps take place."""
    from scripts.attention.served import Device

    return Device("cuda" if run.gpus else "cpu")


def copy_bytes_per_s(run: Run) -> float:
    """The device's copy bandwidth, measured in the same run."""
    on_gpu = bool(run.gpus)
    cell = run.cell(COPY, lambda: {"bytes_per_s": timing.copy_bandwidth(on_gpu)})
    return cell["bytes_per_s"]


def cell_name(shape: Geometry, one: Batch, variant: str) -> str:
    """geometry/batch/variant"""
    return f"{shape.name}/{one.spec}/{variant}"


def unavailable(form: Format, shape: Geometry, run: Run) -> str | None:
    """Why the device can't serve the format in this geometry."""
    from scripts.attention.served import why_unavailable

    return why_unavailable(form, shape, device(run))


def step_of(shape: Geometry, one: Batch, form: Format, run: Run) -> tuple[Any, dict[str, float]]:
    """A step that has passed its gate, and its errors. Raises Failure if it doesn't pass."""
    from scripts.attention.gate import check
    from scripts.attention.step import Step, release

    release()
    same = None
    # A prefill's own rows are attended to as they came, by the other format as coded.
    if form.same_as and one.kind != "prefill":
        same = Step(shape, one, format_named(form.same_as), device(run)).actual()
    step = Step(shape, one, form, device(run))
    return step, check(step, same)


def spread(
    run: Run, call: Callable[[], object], layers: int, graphs: bool = True
) -> dict[str, float]:
    """p20, p50, p80 of a layer's time in microseconds; graphs: of replays, on a GPU."""
    repeats = 1 if run.smoke else run.settings["repeats"]
    return timing.spread_us(call, layers, repeats, bool(run.gpus), graphs)


def timed(
    run: Run,
    call: Callable[[], object],
    layers: int,
    cache_bytes: int,
    copy: float,
    graphs: bool = True,
) -> dict[str, Any]:
    """Times of a layer in microseconds, with achieved bandwidth and the time of its bytes alone."""
    times = spread(run, call, layers, graphs)
    rate = cache_bytes / (times["p50"] * 1e-6)
    return {
        **times,
        "bytes": cache_bytes,
        "tb_per_s": rate / 1e12,
        "fraction_of_copy": rate / copy,
        "floor_us": cache_bytes / copy * 1e6,
    }


def fitting(cell: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The cell with what `measure` adds, or with why this card is too small for it."""
    from torch import OutOfMemoryError
    from triton.runtime.errors import OutOfResources

    try:
        return cell | measure()
    except OutOfMemoryError:
        return cell | {"unavailable": "it does not fit in this GPU's memory"}
    except OutOfResources as short:
        return cell | {"unavailable": f"the kernel does not fit on this GPU: {short}"}


def about(shape: Geometry, one: Batch, variant: str) -> dict[str, Any]:
    """The fields by which tables and plots find a cell."""
    return {
        "geometry": shape.name,
        "batch": one.spec,
        "kind": one.kind,
        "requests": len(one.seq_lens),
        "context": max(one.seq_lens),
        "format": variant,
    }


def measure_all(
    run: Run,
    shapes: list[tuple[Geometry, Batch]],
    variants: Iterable[str],
    measure: Callable[[Geometry, Batch, str], dict[str, Any]],
) -> None:
    """A cell of the run for each shape and variant, behind a progress bar."""
    cells = {
        cell_name(shape, one, variant): partial(measure, shape, one, variant)
        for shape, one in shapes
        for variant in variants
    }
    for name in run.track(cells):
        run.cell(name, cells[name])


def measure_fitting(
    run: Run,
    shapes: list[tuple[Geometry, Batch]],
    variants: Iterable[str],
    measure: Callable[[Geometry, Batch, str], dict[str, Any]],
) -> None:
    """As `measure_all`, with the fields of `about`; a card may be too small for a cell."""

    def cell(shape: Geometry, one: Batch, variant: str) -> dict[str, Any]:
        return fitting(about(shape, one, variant), partial(measure, shape, one, variant))

    measure_all(run, shapes, variants, cell)


def rows(
    cells: dict[str, Any], part: str, reference: str
) -> Iterator[tuple[str, str, dict[str, Any] | None, float | None]]:
    """(shape, format, times, ratio to `reference` of the same shape) of every cell."""
    by_shape: dict[tuple[str, str], dict[str, Any]] = {}
    for cell in cells.values():
        if "geometry" in cell:
            by_shape.setdefault((cell["geometry"], cell["batch"]), {})[cell["format"]] = cell
    for (shape, spec), formats in by_shape.items():
        base = formats.get(reference, {}).get(part)
        for name, cell in formats.items():
            times = cell.get(part)
            ratio = times["p50"] / base["p50"] if times and base else None
            yield f"{shape} {spec}", name, times, ratio


def table_rows(cells: dict[str, Any], part: str, reference: str) -> list[list[str]]:
    """`rows` as text."""
    lines = []
    for shape, name, times, ratio in rows(cells, part, reference):
        figures = ["-"] * 6
        if times:
            figures = [f"{times[key]:,.1f}" for key in ("p20", "p50", "p80")]
            if "bytes" in times:
                figures += [f"{times['tb_per_s']:.2f}", f"{times['fraction_of_copy']:.0%}"]
            else:
                figures += ["-", "-"]
            figures.append("-" if ratio is None else f"{ratio:.3f}")
        lines.append([shape, name, *figures])
    return lines


HEADINGS = ("step", "format", "p20 us", "p50 us", "p80 us", "TB/s", "of copy", "ratio")
