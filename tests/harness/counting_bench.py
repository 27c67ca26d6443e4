"""A script as the harness serves it: four cells, each of which leaves a line in LOG.

WAIT: a cell that blocks until it is killed. EDIT: a cell during which a file of vllm/ is written
and put back. FILE: a path to take as the pinned input; NAMED: one that is not pinned; SPOIL: a file
that each cell writes. GPUS: how many GPUs it wants. VARIANTS: old kernels are welcome. UNTIMED: it
times nothing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from scripts.common import VLLM, main
from scripts.harness import inputs, options
from scripts.harness.run import Run

CELLS = ("a", "b", "c", "d")


def measure(name: str) -> dict[str, float]:
    with open(os.environ["LOG"], "a") as log:
        log.write(f"{name}\n")
    if os.environ.get("WAIT") == name:
        print("waiting", flush=True)
        time.sleep(60)
    if os.environ.get("EDIT") == name:
        path = VLLM / "vllm" / "other.py"
        text = path.read_text()
        path.write_text("PLAN = 'edited'\n")
        path.write_text(text)
    if "SPOIL" in os.environ:
        Path(os.environ["SPOIL"]).write_text(name)
    return {"figure": float(ord(name))}


def run() -> None:
    parser = options.parser("counting", __doc__)
    parser.add_argument("--size", type=int, default=1)
    parsed = parser.parse_args()
    files = []
    if "FILE" in os.environ:
        files.append(inputs.pinned("smollm2-135m-instruct", Path(os.environ["FILE"])))
    if "NAMED" in os.environ:
        files.append(inputs.Input("mine", Path(os.environ["NAMED"])))
    with Run(
        "counting",
        parsed,
        settings={"size": parsed.size},
        files=files,
        gpus=int(os.environ.get("GPUS", "0")),
        variants="VARIANTS" in os.environ,
        timed="UNTIMED" not in os.environ,
    ) as running:
        for name in running.track(CELLS):
            running.cell(name, lambda name=name: measure(name))
        running.write({"cells": len(CELLS)})


if __name__ == "__main__":
    main(run)
