"""The demo's tables."""

from typing import Any

from rich.console import Console
from rich.table import Table

from scripts.demo.settings import PROMPTS

INTERPRETED = (
    "No GPU: the same engine and the same kernels ran, each kernel interpreted in Python, in "
    "float32. Texts and bytes are real; the times say nothing about a GPU."
)


def agreement(reference: list[int], other: list[int]) -> int:
    """How many tokens are equal before the first that differs."""
    for index, (left, right) in enumerate(zip(reference, other, strict=True)):
        if left != right:
            return index
    return len(reference)


def summarise(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per cache format: its figures, beside those of the first."""
    reference = runs[0]
    rows = []
    for run in runs:
        pairs = list(zip(reference["tokens"], run["tokens"], strict=True))
        rows.append(
            {
                "cache": run["cache"],
                "bytes_per_token": run["bytes_per_token"],
                "tokens_held": run["tokens_held"],
                "held_ratio": run["tokens_held"] / reference["tokens_held"],
                "equal_tokens": [agreement(left, right) for left, right in pairs],
                "all_tokens": sum(len(left) for left, _ in pairs),
                "ms_per_token": run["step_s"] * 1e3,
            }
        )
    return rows


def render(console: Console, report: dict[str, Any]) -> None:
    """Print both tables; `report` is what --json writes."""
    names = {"auto": report["settings"]["dtype"]}
    rows = report["summary"]
    memory = report["settings"]["memory"] >> 20
    title = f"{report['model']} on {report['machine']}, {memory} MiB of cache"
    table = Table(title=title, title_justify="left")
    table.add_column("cache", no_wrap=True)
    for heading in ("bytes per token", "tokens held", "", "equal tokens", "ms per token"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            names.get(row["cache"], row["cache"]),
            f"{row['bytes_per_token']:,.0f}",
            f"{row['tokens_held']:,}",
            f"{row['held_ratio']:.2f} x",
            f"{sum(row['equal_tokens'])} of {row['all_tokens']}",
            f"{row['ms_per_token']:,.1f}",
        )
    console.print(table)
    texts = Table(title="Greedy answers", title_justify="left", show_lines=True)
    texts.add_column("prompt")
    for run in report["runs"]:
        texts.add_column(names.get(run["cache"], run["cache"]))
    for index, prompt in enumerate(PROMPTS):
        texts.add_row(prompt, *(run["texts"][index].strip("\n") for run in report["runs"]))
    console.print(texts)
    if report["settings"]["interpreted"]:
        console.print(INTERPRETED)
