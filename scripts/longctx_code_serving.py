"""Programs written behind a long prefix, in batches, and executed: HumanEval's pass@1.

Each question stands behind another stretch of pinned code, so the answer depends on a cache that is
long and not shared. Told are pass@1 with its interval, what was cut off, and the tokens a second.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from scripts.common import Failure, main
from scripts.harness import options, show, stats
from scripts.harness.run import Run
from scripts.quality import humaneval, tasks, texts
from scripts.serving import cells, child, models

NAME = "longctx_code_serving"
PREFIX = 6144
CODE = "code"  # the kind of text in a prefix


def arguments() -> Any:
    """The command line."""
    parser = options.parser(NAME, __doc__, model=True)
    cells.add_flags(parser)
    parser.add_argument(
        "--prefix", type=int, default=PREFIX, help=f"tokens before a question (default {PREFIX:,})"
    )
    parser.add_argument("--questions", type=int, default=164, help="of 164 (default: all)")
    parser.add_argument("--requests", type=int, default=16, help="at a time (default 16)")
    parser.add_argument(
        "--tokens",
        type=int,
        default=humaneval.TOKENS,
        help=f"most of an answer (default {humaneval.TOKENS})",
    )
    parsed = parser.parse_args()
    if parsed.smoke:
        parsed.prefix, parsed.questions, parsed.tokens, parsed.chunk = 16, 1, 2, 64
    return parsed


def prompts(text: models.Text, problems: list[dict[str, Any]], prefix: int) -> list[list[int]]:
    """Token ids of each problem behind `prefix` tokens of the pinned code, from another place."""
    code = text.encode(texts.by_kind([s for s in texts.sources() if s.kind == CODE])[CODE])
    found = []
    for i, problem in enumerate(problems):
        start = i * len(code) // len(problems)
        around = (code[start:] + code * (prefix // len(code) + 1))[:prefix]
        found.append(around + text.encode("\n\n\n" + problem["prompt"]))
    return found


def judged(problems: list[dict[str, Any]], answer: dict[str, Any]) -> dict[str, Any]:
    """A cell of what the engine generated."""
    verdicts = tasks.judge_humaneval(problems, answer["answers"])
    passed = sum(verdict["right"] for verdict in verdicts.values())
    low, high = stats.rate_interval(passed, len(verdicts))
    return {
        "pass_at_1": passed / len(verdicts),
        "pass_at_1_low": low,
        "pass_at_1_high": high,
        "n": len(verdicts),
        "truncated": sum(verdict["truncated"] for verdict in verdicts.values()),
        "seconds": answer["seconds"],
        "generated_tokens_per_s": answer["generated"] / answer["seconds"],
        "tokens_held": answer["tokens_held"],
        "bytes_per_token": answer["bytes_per_token"],
        "answers": verdicts,
    }


def run() -> None:
    """Generate and execute under each format, write and show."""
    parsed = arguments()
    model = models.find(parsed.model, parsed.smoke)
    if model.weights == "dummy":
        raise Failure(f"{model.name} has made-up weights and writes no programs: give another")
    names = ("prefix", "questions", "requests", "tokens", "chunk", "memory")
    with Run(
        NAME,
        parsed,
        settings={name: getattr(parsed, name) for name in names} | {"model": model.name},
        files=[*models.files(parsed.model, model), *texts.files(CODE), humaneval.data()],
        label=f"{model.name.lower()}-{parsed.prefix}",
    ) as this:
        problems = humaneval.problems(parsed.questions)
        asked = prompts(models.Text(model), problems, parsed.prefix)

        def cell(cache: str) -> dict[str, Any]:
            most = max(len(prompt) for prompt in asked) + parsed.tokens
            engine = cells.settings(
                this, parsed, model, cache, context=most, requests=parsed.requests
            )
            job = {
                "engine": engine.dump(),
                "model": asdict(model),
                "prompts": asked,
                "tokens": parsed.tokens,
                "stops": list(humaneval.STOPS),
            }
            answer = child.measure("scripts.serving.generate", job, cache, this.console)
            return judged(problems, answer)

        found = {cache: this.cell(cache, partial(cell, cache)) for cache in parsed.caches}
        path = this.write()
    rows = [
        [
            cache,
            f"{cell['pass_at_1']:.1%}",
            f"{cell['pass_at_1_low']:.1%} … {cell['pass_at_1_high']:.1%}",
            f"{cell['truncated']} of {cell['n']}",
            f"{cell['generated_tokens_per_s']:,.1f}",
        ]
        for cache, cell in found.items()
    ]
    title = f"{model.name}, HumanEval behind {parsed.prefix:,} tokens, {parsed.requests} at a time"
    show.table(title, ["cache", "pass@1", "95 %", "cut off", "tokens/s"], rows)
    print(path)


if __name__ == "__main__":
    main(run)
