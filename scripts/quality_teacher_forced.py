"""What a cache format costs in quality: log-probabilities of real text, token by token.

The same windows of three kinds of pinned text go through the model under each cache format. Told
are the change of the loss (nats a token), the mean distance of the log-probabilities and how often
the most probable token is the same, against the first format, in all and by position.

On a GPU the engine itself is asked. On a CPU (--route torch) the model runs in torch, float32, and
attends to what the format gives back: the same arithmetic without kernels, minutes a format. Told
there, too, are the errors of the K and V that come back, on the first window of each kind.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from scripts.common import WORK, Failure, main
from scripts.harness import gpu, options, show
from scripts.harness.run import Run
from scripts.quality import metrics, texts
from scripts.quality.formats import KEY_PER_TOKEN, KIVI, RELEASE_INT4
from scripts.serving import child, models
from scripts.serving.engines import Settings

CACHES = ("auto", "int8_per_token_head", "int4_per_token_head", KIVI)
# What the torch route compares with, beside them.
COMPARED = (RELEASE_INT4, KEY_PER_TOKEN)
SCORES = WORK / "scores"
# Query tokens that the fused kernels take: their own rows too come out of the cache.
FUSED_TOKENS = 16
REQUESTS = 8
CACHE_BYTES = 2 << 30


def arguments() -> Any:
    """The command line."""
    parser = options.parser("quality_teacher_forced", __doc__, model=True)
    parser.add_argument(
        "--caches",
        nargs="+",
        metavar="DTYPE",
        help=f"cache formats, the reference first (default: {' '.join(CACHES)}); --route torch "
        f"also knows float32 and, there by default, {RELEASE_INT4} (the release's own rule) and "
        f"{KEY_PER_TOKEN} (K coded as V is, in the same bits)",
    )
    parser.add_argument(
        "--route", choices=("engine", "torch"), help="default: the engine where a GPU is"
    )
    parser.add_argument("--window", type=int, default=2048, help="tokens of a text at a time")
    parser.add_argument(
        "--tokens", type=int, default=18432, help="tokens of each kind of text (default 18,432)"
    )
    parsed = parser.parse_args()
    if parsed.smoke:
        parsed.window, parsed.tokens = 24, 48
    if not 2 <= parsed.window <= parsed.tokens:
        parser.error("--window must be 2 or more, and --tokens at least as many")
    return parsed


def pinned_windows(model: models.Model, length: int, total: int) -> dict[str, list[list[int]]]:
    """Each kind's windows of token ids."""
    if length > model.limit:
        raise Failure(f"{model.name} takes {model.limit} tokens at most: give a smaller --window")
    text = models.Text(model)
    # A window is far shorter than the texts, so their head is enough to tokenise.
    found = {
        kind: texts.windows(text.encode(content[: 16 * total]), length, total)
        for kind, content in texts.by_kind().items()
    }
    short = [kind for kind, windows in found.items() if len(windows) < total // length]
    if short:
        raise Failure(
            f"the pinned {short[0]} has fewer than {total} tokens: give a smaller --tokens"
        )
    return found


def job(run: Run, parsed: Any, model: models.Model, cache: str, work: dict[str, Any]) -> Any:
    """Score the texts under one cache format in a process of its own."""
    if parsed.route == "torch":
        asked = {"model": model.path, "cache": cache, "dtype": model.dtype, "texts": work}
        return child.measure("scripts.quality.torch_route", asked, cache, run.console, host())
    settings = Settings(
        model=model.path,
        cache=cache,
        dtype=model.dtype,
        weights=model.weights,
        context=parsed.window + 1,
        requests=REQUESTS,
        chunk=REQUESTS * FUSED_TOKENS,
        chunk_each=FUSED_TOKENS,
        interpreted=not run.gpus,
        memory=CACHE_BYTES,
    )
    asked = {"engine": settings.dump(), "texts": work}
    return child.measure("scripts.quality.engine_route", asked, cache, run.console)


def host() -> dict[str, str]:
    """The variables of the torch route's workers: they import the tree, never a GPU."""
    threads = str(len(os.sched_getaffinity(0)))
    return {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": threads}


def reconstruction(
    run: Run, model: models.Model, caches: list[str], windows: list[list[int]], file: Path
) -> dict[str, Any]:
    """Each format's errors of K and V over these windows; from disk if an earlier run has them."""
    if file.exists() and set(kept := json.loads(file.read_text())) == set(caches):
        return kept
    asked = {"model": model.path, "caches": caches, "dtype": model.dtype, "windows": windows}
    found = child.measure(
        "scripts.quality.reconstruction", asked, "reconstruction", run.console, host()
    )
    file.write_text(json.dumps(found))
    return found


def compared(parts: dict[str, list[metrics.Scores]]) -> dict[str, Any]:
    """The figures of a format against the reference, by kind, in all and by position."""
    kinds = {kind: metrics.compare(*pair) for kind, pair in parts.items()}
    both = [metrics.Scores.joined(list(side)) for side in zip(*parts.values(), strict=True)]
    return metrics.compare(*both) | {"kinds": kinds, "buckets": metrics.by_position(*both)}


def rows(cells: dict[str, Any]) -> list[list[str]]:
    """A line of the table for each format and kind of text."""
    return [
        [
            cache.replace("_per_token_head", ""),
            kind,
            f"{figures['nll']:.4f}",
            f"{figures['delta_nll']:+.5f}",
            f"{(figures['delta_nll_high'] - figures['delta_nll_low']) / 2:.5f}",
            f"{figures['mean_abs_dlogp']:.5f}",
            f"{figures['top1_agreement']:.2%}",
        ]
        for cache, cell in cells.items()
        for kind, figures in [*cell["kinds"].items(), ("all", cell)]
    ]


def run() -> None:
    """Score, compare with the first format, write and show."""
    parsed = arguments()
    parsed.route = parsed.route or ("engine" if parsed.smoke or gpu.visible() else "torch")
    if parsed.caches is None:
        parsed.caches = [*CACHES, *(COMPARED if parsed.route == "torch" else ())]
    model = models.find(parsed.model, parsed.smoke)
    if model.weights == "dummy":
        raise Failure(f"{model.name} has made-up weights: give a model that was trained")
    settings = {
        "route": parsed.route,
        "model": model.name,
        "window": parsed.window,
        "tokens": parsed.tokens,
        "reference": parsed.caches[0],
    }
    with Run(
        "quality_teacher_forced",
        parsed,
        settings=settings,
        files=[*models.files(parsed.model, model), *texts.files()],
        label=f"{model.name.lower()}-{parsed.route}",
        gpus=1 if parsed.route == "engine" else 0,
        timed=False,
    ) as this:
        windows = pinned_windows(model, parsed.window, parsed.tokens)
        folder = SCORES / this.key
        folder.mkdir(parents=True, exist_ok=True)
        if parsed.fresh:
            for file in [*folder.glob("*.npz"), *folder.glob("*.json")]:
                file.unlink()

        def kept(cache: str, kind: str) -> Path:
            return folder / f"{cache}-{kind}.npz"

        def scores(cache: str) -> list[metrics.Scores]:
            """From disk what an earlier run has scored."""
            work = {
                kind: {"windows": windows[kind], "file": str(kept(cache, kind))}
                for kind in windows
                if not kept(cache, kind).exists()
            }
            if work:
                job(this, parsed, model, cache, work)
            return [metrics.Scores.load(kept(cache, kind)) for kind in windows]

        def cell(cache: str) -> dict[str, Any]:
            pairs = zip(windows, scores(parsed.caches[0]), scores(cache), strict=True)
            return compared({kind: [reference, other] for kind, reference, other in pairs})

        cells = {cache: this.cell(cache, partial(cell, cache)) for cache in parsed.caches}
        summary = {}
        if parsed.route == "torch":
            first = [of_kind[0] for of_kind in windows.values()]
            file = folder / "reconstruction.json"
            summary["reconstruction"] = reconstruction(this, model, parsed.caches, first, file)
        path = this.write(summary)
    headings = ["cache", "text", "nll", "Δ nll", "±", "|Δ logp|", "top-1"]
    tokens = next(iter(cells.values()))["n"]
    title = f"{model.name}, {parsed.route}, {tokens:,} tokens, against {parsed.caches[0]}"
    show.table(title, headings, rows(cells))
    if summary:
        errors = summary["reconstruction"]
        table = [[name, f"{one['key']:.5f}", f"{one['value']:.5f}"] for name, one in errors.items()]
        show.table("Relative errors of K and V that come back", ["cache", "K", "V"], table)
    print(path)


if __name__ == "__main__":
    main(run)
