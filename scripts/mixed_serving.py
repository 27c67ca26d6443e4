"""What a prompt that arrives does to the requests that decode, by the real engine.

Some requests decode, then a long prompt comes and is taken in chunk by chunk beside them. Told are
the steps around it, their time (p50, p99, longest) meanwhile and before, the tokens that a request
gets from one, the time to the first token of both kinds, and the longest step of the first round,
which compiles and counts for nothing else. Each format is compared with the first one. Steps that
wait for the host take up to half as long again in one process as in another: --processes measures
the formats in turn, several times. A host may also be slow for tens of seconds, longer than a
format takes: with --alternate the engines of all formats live at the same time and take turns, an
arrival each, so that all formats share what slows the host.
"""

from __future__ import annotations

from typing import Any

from scripts.common import main
from scripts.harness import options, show
from scripts.serving import cells, figures, mixed, models
from scripts.serving.figures import Figure

NAME = "mixed_serving"
REPEATS = 3
FIGURES = (
    Figure("alone ms", "alone_ms_p50"),
    Figure("p50 ms", "step_ms_p50"),
    Figure("p99 ms", "step_ms_p99"),
    Figure("longest ms", "step_ms_max"),
    Figure("longest ms of an arrival", "longest_ms_p50"),
    Figure("cold longest ms", "cold.longest_ms", compared=False),
    Figure("tokens/step", "tokens_per_step.alone"),
    Figure("first s", "first_token_s.first running", ".3f"),
    Figure("all first s", "first_token_s.running", ".3f"),
    Figure("new one's first s", "first_token_s.arriving", ".3f"),
    Figure("tokens held", "tokens_held", ",.0f"),
)


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
    parser.add_argument(
        "--processes", type=options.positive, default=1,
        help="engines of each format, started in turn (with --alternate: one of each format at a "
        "time), whose steps are put together (default 1)",
    )  # fmt: skip
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
    # While a prompt is taken in, each step gives a running request a token, and drafts at best.
    steps = 2 * parsed.around + 2 * parsed.arriving // parsed.chunk + 64
    most = 1 + parsed.drafts
    prefill = parsed.running * parsed.context // parsed.chunk + parsed.running
    found, path = cells.run(
        NAME,
        parsed,
        model,
        measured,
        label=f"{parsed.running}x{parsed.context}-{parsed.arriving}",
        worker="scripts.serving.mixed",
        context=max(parsed.context + prefill * most, parsed.arriving) + steps * most,
        requests=parsed.running + 1,
        compared=FIGURES,
        processes=parsed.processes,
        merge=mixed.merge,
    )
    title = (
        f"{model.name}, {parsed.arriving:,} tokens arrive at {parsed.running} requests of "
        f"{parsed.context:,}{cells.drafted(parsed)}"
    )
    show.table(title, *figures.table(found, FIGURES))
    print(path)


if __name__ == "__main__":
    main(run)
