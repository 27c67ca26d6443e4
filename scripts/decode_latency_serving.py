"""Milliseconds a token of a single stream after a long prompt, by the real engine.

One engine for each cache format, in a process of its own; each repeat is a new request, of which
the median step counts.
"""

from __future__ import annotations

from typing import Any

from scripts.common import main
from scripts.harness import options, show
from scripts.serving import cells, models
from scripts.serving.decode import SETTLE

NAME = "decode_latency_serving"
REPEATS = 5


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
        context=parsed.context + SETTLE + parsed.tokens + 1,
        requests=1,
    )
    rows = [
        [
            cache,
            f"{cell['ms_per_token']['p50']:.3f}",
            f"{cell['ms_per_token']['p20']:.3f} … {cell['ms_per_token']['p80']:.3f}",
            f"{cell['first_token_s']['p50']:.3f}",
            f"{cell['tokens_held']:,}",
        ]
        for cache, cell in found.items()
    ]
    title = f"{model.name}, one request after {parsed.context:,} tokens"
    show.table(title, ["cache", "ms/token", "p20 … p80", "first s", "tokens held"], rows)
    print(path)


if __name__ == "__main__":
    main(run)
