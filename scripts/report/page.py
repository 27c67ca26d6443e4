"""results/REPORT.md: where the figures come from, tables, plots, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tabulate import tabulate  # type: ignore[import-untyped]

from scripts import capacity, release_suites
from scripts.attention import bench
from scripts.report import kernel_benchmark, plots
from scripts.report.load import RESULTS, Result, named

PLOTS = "plots"
KERNELS = ("bench_quant_vs_flash", "bench_paged_decode")
BENCHMARKED = ("decode-int8", "decode-int4", "decode-int4_kivi")
# Of a kernel bench: what is timed, and the heading of its times.
PARTS = {
    "read": ("Read", "µs a layer (p20–p80)"),
    "store": ("Store", "µs a layer (p20–p80)"),
    "store_cold": ("Store, after the L2 cache was flushed", "µs a layer (p20–p80)"),
    "once": ("Before the layers' stores, once a step", "µs a step (p20–p80)"),
}

# What the whole set consists of: script -> what it shows.
EXPECTED = {
    "bench_quant_vs_flash": "kernel time of every format beside FlashAttention",
    "bench_paged_decode": "fused kernel beside the stock kernel and a dense fallback",
    "sweep_decode": "launch parameters",
    "capacity": "tokens and requests a cache holds",
    "decode_latency_serving": "single-stream decode latency of the engine",
    "mixed_serving": "step times while a prompt arrives",
    "longctx_code_serving": "batched code generation behind a long prefix, pass@1",
    "quality_teacher_forced": "quality by position",
    "quality_paired_tasks": "the same questions under two configurations",
}


class Page:
    """The report's text, and the plots beside it, in `folder`."""

    def __init__(self, results: list[Result], folder: Path = RESULTS) -> None:
        self.results, self.folder = results, folder
        self.parts: list[str] = []
        self.plots: set[Path] = set()
        self.missing: list[str] = []

    def render(self) -> str:
        """The whole page; writes the plots."""
        self.add("# Report\n\nMade by `make report` from the JSON files in this folder.")
        self._origin()
        self._kernels()
        self._chunks()
        self._engine()
        self._capacity()
        self._others()
        self._absent()
        return "\n\n".join(self.parts) + "\n"

    def add(self, text: str) -> None:
        self.parts.append(text.strip("\n"))

    # ------------------------------------------------------------------

    def _origin(self) -> None:
        rows = []
        for one in self.results:
            rows.append(
                [
                    f"[{one.shown}]({one.shown})",
                    card(one),
                    clocks(one),
                    versions(one),
                    one.commit[:12],
                    str(one.data.get("date", "not recorded"))[:10],
                ]
            )
        headings = ("result", "card", "clocks", "versions", "series commit", "date")
        self.add("## Where the figures come from\n\n" + table(headings, rows))

    def _kernels(self) -> None:
        self.add("## Kernels")
        sources = [(one, one.cells) for one in named(self.results, *KERNELS)]
        benchmarked = named(self.results, *BENCHMARKED)
        sources += [(one, kernel_benchmark.cells(one.data)) for one in benchmarked]
        peaks = copy_peaks(sources)
        for one, cells in sources:
            kind = one.path.stem.removeprefix(one.name).strip("-")
            title = f"{one.place}: {one.name}" + (f", {kind}" if kind not in ("", "result") else "")
            self.add(f"### {title}\n\n[{one.shown}]({one.shown})")
            copy = peaks.get(one.place)
            if copy:
                own = copied(cells)
                told = f"Copy bandwidth of the card: {copy / 1e12:.2f} TB/s"
                # Earlier runs copied by the copy engine, which is slower than a kernel.
                if not own or own < 0.95 * copy:
                    mine = f"{own / 1e12:.2f}" if own else "not measured"
                    told += f", the most that a run on it measured (this one: {mine})"
                self.add(f"{told}.")
            else:
                self.missing.append(f"byte floor of {one.shown}: no copy bandwidth was recorded")
            reference = one.data.get("summary", {}).get("reference", "fa-bf16")
            for part, (title, times) in PARTS.items():
                rows = list(kernel_rows(cells, part, reference, copy))
                if rows:
                    ratio = f"over {plots.title_of(reference)}"
                    headings = ("step", "format", times, "TB/s", "of copy", ratio)
                    self.add(f"{title}:\n\n" + table(headings, rows))
            unserved = [cell for cell in cells.values() if "unavailable" in cell]
            self._refused(
                f"{plots.title_of(cell['format'])}: {cell['unavailable']}" for cell in unserved
            )
            shapes = dict.fromkeys(
                (cell["geometry"], cell["kind"])
                for cell in cells.values()
                # Of stores alone there is nothing to draw.
                if cell.get("kind") in ("decode", "verify", "prefill")
                and any(key in cell for key in ("read", "unavailable"))
            )
            for shape, kind in shapes:
                path = self._plot(f"{one.slug}-{kind}-{shape}")
                drawn = plots.kernel_time(path, cells, shape, kind, copy)
                self._show(path, drawn, f"{kind}, {shape}")

    def _chunks(self) -> None:
        for one in named(self.results, "prefill"):
            self.add(f"## {one.place}: prefill through the scratch\n\n[{one.shown}]({one.shown})")
            rows = []
            for step, formats in one.data["chunks"].items():
                for form, value in formats.items():
                    ours = value["scratch"]
                    rate = ours["stages"].get("dequantize_tb_s")
                    rows.append(
                        [
                            step,
                            form,
                            f"{value['fa3_bf16_us']:,.0f}",
                            f"{ours['median_us']:,.0f}",
                            f"{value['ratio_to_fa3_bf16']:.3f}",
                            "-" if rate is None else f"{rate:.2f}",
                            f"{ours['error']:.1e}",
                        ]
                    )
            headings = ("step", "format", "FA3 BF16 µs", "µs", "ratio", "TB/s", "error")
            self.add(table(headings, rows))

    def _engine(self) -> None:
        for one in named(self.results, "engine"):
            self.add(
                f"## {one.place}: the engine\n\n{one.data['what']}\n\n[{one.shown}]({one.shown})"
            )
            keys = ("ttft_s", "decode_ms", "mixed_ms_median", "mixed_ms_max", "new_ttft_s")
            rows = [
                [name, *(f"{engine['median_of_3'][key]:.3f}" for key in keys)]
                for name, engine in one.data["engines"].items()
            ]
            rows += [
                [f"{name}, over BF16", *(f"{ratios[key]:.3f}" for key in keys)]
                for name, ratios in one.data["ratio_to_bf16"].items()
            ]
            headings = (
                "engine", "first token s", "decode ms", "step while a prompt arrives ms",
                "longest ms", "new one's first token s",
            )  # fmt: skip
            self.add(table(headings, rows))

    def _capacity(self) -> None:
        for one in named(self.results, "capacity"):
            self.add(f"## Capacity\n\n[{one.shown}]({one.shown}); tokens in one request.")
            context = "requests at the context limit"
            headings = ("model", "cache", "before 0001", "after", "gain", context, "after")
            self.add(table(headings, capacity.rows(one.cells)))
            unserved = [cell for cell in one.cells.values() if "unavailable" in cell]
            self._refused(f"{cell['dtype']}: {cell['unavailable']}" for cell in unserved)
            path = self._plot(one.slug)
            drafters = one.data["summary"].get("without_drafter", {})
            self._show(path, plots.capacity(path, one.cells, drafters), "capacity")

    def _others(self) -> None:
        self._section("mixed_serving", "Step time while a prompt arrives", plots.step_times)
        self._section("decode_latency_serving", "Decode latency")
        self._section("longctx_code_serving", "Code behind a long prefix")
        self._section("quality_teacher_forced", "Quality by position", plots.quality)
        self._reconstruction()
        self._section("quality_paired_tasks", "Paired tasks")
        self._suites()
        for one in named(self.results, "sweep_decode"):
            rows = [
                [", ".join(map(str, key)), launch, f"{mean:.3f}"]
                for *key, launch, mean in one.data["summary"]["entries"]
            ]
            launches = "tile, warps, segments, stages"
            headings = ("entry of the launch table", launches, "mean over FlashAttention")
            self.add(f"## Launch parameters\n\n[{one.shown}]({one.shown})")
            self.add(table(headings, rows))

    def _section(
        self, name: str, title: str, draw: Callable[[Path, dict[str, Any]], bool] | None = None
    ) -> None:
        for one in named(self.results, name):
            self.add(f"## {title}: {one.place}, {one.path.stem}\n\n[{one.shown}]({one.shown})")
            if any(scalars(cell) for cell in one.cells.values()):
                self.add(cell_table(one.cells))
            summary = one.data.get("summary", {})
            if summary.get("ratio"):
                self.add(f"Over {summary['reference']}:\n\n" + cell_table(summary["ratio"]))
            if draw:
                path = self._plot(one.slug)
                self._show(path, draw(path, one.cells), title)

    def _reconstruction(self) -> None:
        for one in named(self.results, "quality_teacher_forced"):
            if errors := one.data["summary"].get("reconstruction"):
                rows = [[name, *sides(told)] for name, told in errors.items()]
                self.add(
                    "Relative errors of the keys and values that a cache gives back, on the "
                    f"model's own activations, in all layers (least–most of a layer); "
                    f"[{one.shown}]({one.shown}):\n\n" + table(("cache", "K", "V"), rows)
                )

    def _suites(self) -> None:
        for one in named(self.results, release_suites.NAME):
            told = one.data["summary"]
            new, cut = len(told["new_failures"]), len(told["cut"])
            self.add(
                f"## The release's tests: {one.place}\n\n[{one.shown}]({one.shown}); {new} new "
                f"failures. Of {cut} of {told['files']} files a limit cut some cases or all, which "
                "count as far as both sides ran them; files without any are not shown."
            )
            ran = {path: cell for path, cell in one.cells.items() if _ran(cell)}
            rows = [release_suites.row(*item) for item in ran.items()]
            self.add(table(("file", "the release", "with the series", "new failures"), rows))

    def _refused(self, reasons: Iterable[str]) -> None:
        if lines := [f"- {reason}" for reason in dict.fromkeys(reasons)]:
            self.add("Not served there:\n\n" + "\n".join(lines))

    def _absent(self) -> None:
        there = {one.name for one in self.results}
        absent = [f"{name}: {what}" for name, what in EXPECTED.items() if name not in there]
        lines = [f"- {line}" for line in [*absent, *self.missing]]
        self.add("## Missing\n\n" + ("\n".join(lines) or "Nothing."))

    def _plot(self, name: str) -> Path:
        return self.folder / PLOTS / f"{name}.svg"

    def _show(self, path: Path, drawn: bool, title: str) -> None:
        if drawn:
            self.plots.add(path)
            self.add(f"![{title}]({PLOTS}/{path.name})")
        else:
            self.missing.append(f"plot {path.name}: no cells for it")


def _ran(cell: dict[str, Any]) -> bool:
    """Whether any case of a file ran on either side."""
    return any(side and side["counts"] for side in (cell["before"], cell["after"]))


def table(headings: Iterable[str], rows: list[list[str]]) -> str:
    """A Markdown table; the first two columns read from the left."""
    names = list(headings)
    align = ["left" if number < 2 else "right" for number in range(len(names))]
    return tabulate(rows, names, tablefmt="pipe", disable_numparse=True, colalign=align)


def copied(cells: dict[str, Any]) -> float | None:
    """Bytes a second that a run's copy moved, None if it measured none."""
    return cells.get(bench.COPY, {}).get("bytes_per_s")


def copy_peaks(sources: Iterable[tuple[Result, dict[str, Any]]]) -> dict[str, float]:
    """The most that any run on a GPU copied: what its bandwidths are compared with."""
    peaks: dict[str, float] = {}
    for one, cells in sources:
        peaks[one.place] = max(peaks.get(one.place, 0.0), copied(cells) or 0.0)
    return peaks


def kernel_rows(
    cells: dict[str, Any], part: str, reference: str, copy: float | None
) -> Iterable[list[str]]:
    """The table rows of a part (read, store) of a kernel result.

    copy: bytes a second of the card's copy.
    """
    for shape, name, times, ratio in bench.rows(cells, part, reference):
        if not times:
            continue
        spread = f"{times['p50']:,.1f}"
        if "p20" in times:
            spread += f" ({times['p20']:,.1f}–{times['p80']:,.1f})"
        yield [
            shape,
            plots.title_of(name),
            spread,
            f"{times['tb_per_s']:.2f}" if "tb_per_s" in times else "-",
            f"{times['tb_per_s'] * 1e12 / copy:.0%}" if copy and "tb_per_s" in times else "-",
            f"{ratio:.3f}" if ratio else "-",
        ]


def sides(errors: dict[str, Any]) -> Iterable[str]:
    """The errors of K and of V as text."""
    for side in ("key", "value"):
        layers = errors[f"{side}_by_layer"]
        yield f"{errors[side]:.4f} ({min(layers):.4f}–{max(layers):.4f})"


def scalars(cell: Any) -> dict[str, str]:
    """A cell's plain figures as text, by name, and those one level below.

    A spread reads as its median with p20 and p80; lists and what lies deeper are left to the JSON.
    """
    found: dict[str, str] = {}
    for key, value in cell.items() if isinstance(cell, dict) else ():
        if isinstance(value, dict) and "p50" in value:
            found[key] = "{p50:,.4g} ({p20:,.4g}–{p80:,.4g})".format(**value)
        elif isinstance(value, dict):
            inner = {name: _plain(one) for name, one in value.items()}
            found |= {f"{key}.{name}": text for name, text in inner.items() if text}
        elif text := _plain(value):
            found[key] = text
    return found


def _plain(value: Any) -> str | None:
    """A figure or word as text, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def cell_table(cells: dict[str, Any]) -> str:
    """The cells' plain figures, a row a cell and a column a figure."""
    figures = {name: scalars(cell) for name, cell in cells.items()}
    names = list(dict.fromkeys(key for row in figures.values() for key in row))
    rows = [[cell, *(row.get(name, "-") for name in names)] for cell, row in figures.items()]
    return table(("cell", *names), rows)


def card(one: Result) -> str:
    """The GPU with its driver as recorded, else the machine."""
    if "environment" in one.data:
        gpus = one.data["environment"]["gpus"]
        words = [f"{gpu['name']}, driver {gpu['driver']}" for gpu in gpus]
        return "; ".join(words) or one.data["environment"]["machine"]["cpu"]
    return one.data.get("gpu") or one.data.get("machine") or "not recorded"


def clocks(one: Result) -> str:
    """The clock state as recorded."""
    environment = one.data.get("environment")
    if environment is None:
        return "see card" if "MHz" in card(one) else "not recorded"
    if not environment["gpus"]:
        return "no GPU"
    locked = environment["gpus"][0]["clocks_locked"]
    words = {True: "locked", False: "not locked", None: "lock unknown"}[locked]
    load = environment.get("load", {})
    if "sm_clock_mhz" in load:
        low, high = load["sm_clock_mhz"]
        words += f", SM {low}–{high} MHz after the cells"
    return ", ".join([words, *load.get("slowdowns", [])])


def versions(one: Result) -> str:
    """vllm, torch and triton as recorded."""
    known = one.data.get("environment", one.data).get("versions", one.data)
    words = [f"{name} {known[name]}" for name in ("vllm", "torch", "triton") if name in known]
    return ", ".join(words) or "not recorded"
