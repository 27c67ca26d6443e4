"""The same questions under two cache formats: which answers are lost, which gained.

HumanEval's programs are executed in a sandbox, GSM8K is asked and judged by lm-eval. Each question
is its own control: the exact McNemar test tells whether lost and gained differ by more than chance.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from scripts.common import Failure, main
from scripts.harness import options, show
from scripts.harness.run import Run
from scripts.quality import gsm8k, humaneval, tasks
from scripts.serving import cells, child, models

NAME = "quality_paired_tasks"
TASKS = ("humaneval", "gsm8k")
CONTEXT = 4096


def arguments() -> Any:
    """The command line."""
    parser = options.parser(NAME, __doc__, model=True)
    cells.add_flags(parser)
    parser.add_argument(
        "--tasks", nargs="+", choices=TASKS, default=["humaneval"], help="default: humaneval"
    )
    parser.add_argument("--questions", type=int, default=164, help="of each task (default 164)")
    parser.add_argument(
        "--tokens", type=int, default=humaneval.TOKENS, help="most of an answer (default 512)"
    )
    parser.add_argument("--requests", type=int, default=32, help="at a time (default 32)")
    parser.add_argument(
        "--examples", type=int, default=5, help="GSM8K: solved questions before each (default 5)"
    )
    parser.add_argument(
        "--gsm8k", type=Path, metavar="FOLDER", help="GSM8K's train.jsonl and test.jsonl"
    )
    parsed = parser.parse_args()
    if parsed.smoke:
        parsed.questions, parsed.tokens, parsed.examples, parsed.chunk = 1, 2, 0, 64
    if "gsm8k" in parsed.tasks:
        gsm8k.require(parsed.gsm8k)
    return parsed


def answers(run: Run, parsed: Any, model: models.Model, task: str, cache: str) -> Any:
    """Question -> verdict under one cache format."""
    context = min(CONTEXT, model.limit)
    engine = cells.settings(run, parsed, model, cache, context=context, requests=parsed.requests)
    job = {"engine": engine.dump(), "model": asdict(model), "tokens": parsed.tokens}
    label = f"{task} {cache}"
    if task == "gsm8k":
        folder = str(parsed.gsm8k.resolve()) if parsed.gsm8k else None
        job |= {"questions": parsed.questions, "examples": parsed.examples, "folder": folder}
        return child.measure("scripts.quality.gsm8k", job, label, run.console)
    problems = humaneval.problems(parsed.questions)
    text = models.Text(model)
    job |= {
        "prompts": [text.encode(problem["prompt"]) for problem in problems],
        "stops": list(humaneval.STOPS),
    }
    told = child.measure("scripts.serving.generate", job, label, run.console)
    return tasks.judge_humaneval(problems, told["answers"])


def run() -> None:
    """Ask under each format, compare with the first one, write and show."""
    parsed = arguments()
    model = models.find(parsed.model, parsed.smoke)
    if model.weights == "dummy":
        raise Failure(f"{model.name} has made-up weights and answers nothing: give another model")
    names = ("questions", "tokens", "requests", "examples", "chunk", "memory")
    reference = parsed.caches[0]
    files = models.files(parsed.model, model)
    if "humaneval" in parsed.tasks:
        files.append(humaneval.data())
    if "gsm8k" in parsed.tasks:
        files += gsm8k.data(parsed.gsm8k)
    with Run(
        NAME,
        parsed,
        settings={name: getattr(parsed, name) for name in names}
        | {"model": model.name, "reference": reference},
        files=files,
        label=model.name.lower(),
        timed=False,
    ) as this:

        def cell(task: str, cache: str) -> dict[str, Any]:
            found = answers(this, parsed, model, task, cache)
            base = found if cache == reference else this.cells.values[f"{task} {reference}"]
            return tasks.paired(base.get("answers", base), found)

        found = {
            (task, cache): this.cell(f"{task} {cache}", partial(cell, task, cache))
            for task in parsed.tasks
            for cache in parsed.caches
        }
        path = this.write()
    rows = [
        [
            f"{task} {cache.replace('_per_token_head', '')}",
            f"{cell['right']} of {cell['n']}",
            str(cell["lost"]),
            str(cell["gained"]),
            f"{cell['p_value']:.3f}",
            str(cell["truncated"]),
        ]
        for (task, cache), cell in found.items()
    ]
    show.table(
        f"{model.name}, against {reference}",
        ["task", "right", "lost", "gained", "p", "cut off"],
        rows,
    )
    print(path)


if __name__ == "__main__":
    main(run)
