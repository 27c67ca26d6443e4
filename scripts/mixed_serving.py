"""What a prompt that arrives does to the requests that decode, by the real engine.

Some requests decode, then a long prompt comes and is taken in chunk by chunk beside them. Told are
the steps around it, the time between two tokens (p50, p99) meanwhile and before, and the time to
the first token of both kinds.
"""

from __future__ import annotations

from typing import Any

from scripts.common import main
from scripts.harness import options, show
from scripts.serving import cells, models

NAME = "mixed_serving"
REPEATS = 3


def arguments() -> Any:
    """The command line."""
    parser = options.parser(NAME, __doc__, model=True)
    cells.add_flags(parser, context=4096)
    parser.add_argument(
        "--arriving", type=int, default=4096, help="tokens of the new prompt (default 4,096)"
    )
    parser.add_argument(
        "--running", type=int, default=4, help="requests that decode meanwhile (default 4)"
    )
    parser.add_argument(
        "--around", type=int, default=20, help="steps shown before and after (default 20)"
    )
    parsed = parser.parse_args()
    if parsed.smoke:
        parsed.context, parsed.arriving, parsed.chunk = 12, 36, 16
        parsed.running, parsed.around = 2, 2
        parsed.repeats = parsed.repeats or 1
    return parsed


def run() -> None:
    """Measure each format, write and show."""
    parsed = arguments()
    model = models.find(parsed.model, parsed.smoke)
    measured = {
        "context": parsed.context,
        "arriving": parsed.arriving,
        "running": parsed.running,
        "around": parsed.around,
        "repeats": parsed.repeats or REPEATS,
    }
    # While a prompt is taken in, each step gives a running request one token.
    steps = 2 * parsed.around + 2 * parsed.arriving // parsed.chunk + 64
    prefill = parsed.running * parsed.context // parsed.chunk + parsed.running
    found, path = cells.run(
        NAME,
        parsed,
        model,
        measured,
        label=f"{parsed.running}x{parsed.context}-{parsed.arriving}",
        worker="scripts.serving.mixed",
        context=max(parsed.context + prefill, parsed.arriving) + steps,
        requests=parsed.running + 1,
    )
    rows = [
        [
            cache,
            f"{cell['alone_ms_p50']:.2f}",
            f"{cell['step_ms_p50']:.2f}",
            f"{cell['step_ms_p99']:.2f}",
            f"{cell['first_token_s']['running']:.3f}",
            f"{cell['first_token_s']['arriving']:.3f}",
        ]
        for cache, cell in found.items()
    ]
    title = (
        f"{model.name}, {parsed.arriving:,} tokens arrive at {parsed.running} requests of "
        f"{parsed.context:,}"
    )
    headings = ["cache", "alone ms", "p50 ms", "p99 ms", "first s", "new one's first s"]
    show.table(title, headings, rows)
    print(path)


if __name__ == "__main__":
    main(run)
