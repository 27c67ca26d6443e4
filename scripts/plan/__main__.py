"""python -m scripts.plan: a model's cache groups and capacity before and after patch 0001."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tabulate import tabulate  # type: ignore[import-untyped]

from scripts import common
from scripts.plan import planner
from scripts.plan.geometry import Geometry, find
from scripts.plan.memory import memory_bytes


def measure(geometry: Geometry, memory: int, rivals: bool, **options: Any) -> dict[str, Any]:
    """All plans of one model, as what --json prints."""
    rules = planner.RULES if rivals else planner.RULES[:2]
    plans = {rule: planner.plan(geometry, memory, rule, **options) for rule in rules}
    gain = plans["after"].tokens / plans["before"].tokens - 1
    return {
        "model": geometry.name,
        "title": geometry.title,
        "layers": geometry.counts,
        "memory": memory,
        "context": options["context"] or geometry.context,
        "dtype": options["dtype"],
        "tp": options["tp"],
        "gain_percent": round(100 * gain, 2),
        "plans": {name: asdict(plan) for name, plan in plans.items()},
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as text, one line a model and rule."""
    lines = []
    for row in rows:
        first = row["plans"]["before"]["tokens"]
        for name, plan in row["plans"].items():
            lines.append(
                [
                    row["title"] if name == "before" else "",
                    name,
                    plan["group_size"],
                    plan["groups"],
                    plan["padding"],
                    plan["full_slots"],
                    f"{plan['bytes_per_token'] / 1024:.2f}",
                    f"{plan['intercept'] / 2**20:,.1f}",
                    f"{plan['tokens']:,}",
                    f"{100 * (plan['tokens'] / first - 1):+.1f} %" if name != "before" else "",
                ]
            )
    headers = "model rule group_size groups padding full_slots KiB/token fixed_MiB tokens gain"
    return tabulate(
        lines,
        headers=[word.replace("_", " ") for word in headers.split()],
        colalign=("left", "left", *["right"] * 8),
        disable_numparse=True,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.plan", description=__doc__)
    parser.add_argument(
        "--model", default="all", help="a name, the path of a config.json, or all (default)"
    )
    parser.add_argument("--memory", default="12GiB", help="the cache's memory on each GPU")
    parser.add_argument("--context", type=int, help="longest request (default: the model's limit)")
    parser.add_argument("--dtype", default="bfloat16", choices=planner.DTYPES)
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel ranks")
    parser.add_argument("--rivals", action="store_true", help="the three open proposals too")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON instead")
    return parser.parse_args()


def _run() -> None:
    arguments = _arguments()
    memory = memory_bytes(arguments.memory)
    geometries = find(arguments.model)
    for name in ("context", "tp"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise common.Failure(f"--{name} {value}: give a number of 1 or more")
    options = {name: getattr(arguments, name) for name in ("context", "dtype", "tp")}
    rows = [measure(geometry, memory, arguments.rivals, **options) for geometry in geometries]
    if arguments.json is None:
        print(table(rows))
        print(
            f"\ncache of {arguments.dtype}, {arguments.memory} on each of {arguments.tp} GPU(s); "
            "tokens: one request that fills the memory; fixed: its bytes apart from the slope"
        )
        return
    text = json.dumps(rows, indent=1) + "\n"
    if arguments.json == "-":
        print(text, end="")
    else:
        Path(arguments.json).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    common.main(_run)
