"""Milliseconds a token of a single stream after a long prompt, by the real engine.

One engine for each cache format, in a process of its own; each repeat is a new request, of which
the median step counts, over the mean tokens of one where drafts are verified. The first request
compiles: told of it is its longest step alone. Each format is compared with the first one. A host
may be slow for tens of seconds, as long as a format takes: with --alternate the engines of all
formats live at the same time and take turns, a request each, so that all formats share what slows
the host.
"""

from __future__ import annotations

from typing import Any

from scripts.common import main
from scripts.harness import options, show
from scripts.serving import cells, decode, figures, models
from scripts.serving.figures import Figure

NAME = "decode_latency_serving"
REPEATS = 5
FIGURES = (
    Figure("ms/token", "ms_per_token.p50", ".3f"),
    Figure("p20", "ms_per_token.p20", ".3f", compared=False),
    Figure("p80", "ms_per_token.p80", ".3f", compared=False),
    Figure("ms/step", "step_ms.p50", ".3f"),
    Figure("longest ms", "longest_ms"),
    Figure("cold longest ms", "cold.longest_ms", compared=False),
    Figure("tokens/step", "tokens_per_step"),
    Figure("first s", "first_token_s.p50", ".3f"),
    Figure("tokens held", "tokens_held", ",.0f"),
)


def arguments() -> Any:
    """The command line."""
    parser = options.parser(NAME, __doc__, model=True)
    cells.add_flags(parser, context=4096)
    parser.add_argument("--tokens", type=int, default=64, help="tokens to time (default 64)")
    parsed = parser.parse_args()
    if parsed.smoke:
        parsed.context, parsed.tokens, parsed.chunk = 24, 2, 16
        parsed.repeats = parsed.repeats or 1
    return parsed


def run() -> None:
    """Measure each format, write and show."""
    parsed = arguments()
    model = models.find(parsed.model, parsed.smoke)
    measured = {
        "context": parsed.context,
        "tokens": parsed.tokens,
        "repeats": parsed.repeats or REPEATS,
    }
    found, path = cells.run(
        NAME,
        parsed,
        model,
        measured,
        label=str(parsed.context),
        worker="scripts.serving.decode",
        context=parsed.context + decode.room(parsed.tokens, 1 + parsed.drafts),
        requests=1,
        compared=FIGURES,
    )
    title = f"{model.name}, one request after {parsed.context:,} tokens{cells.drafted(parsed)}"
    show.table(title, *figures.table(found, FIGURES))
    print(path)


if __name__ == "__main__":
    main(run)
