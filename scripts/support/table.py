"""The support table's text, from plain facts."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TypeVar

from tabulate import tabulate

from scripts.support.dispatched import Feature, Kernel

Key = tuple[str, str, int, str]
_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V", bound=Hashable)
COMPILED, UNTRIED = "compiled only", "not compiled in tests"
# By whether decode is fused, and whether FlashAttention prefills.
_WAYS = {
    (True, True): "fused decode, prefill by FlashAttention",
    (True, False): "fused decode, prefill by the unified kernel",
    (False, True): "decode by the unified kernel, prefill by FlashAttention",
    (False, False): "both by the unified kernel",
}


@dataclass(frozen=True)
class Release:
    """A release, the patches with a form of their own for it, and the cards it ran on."""

    version: str
    ports: tuple[str, ...]
    same_kernels: bool
    cards: tuple[str, ...]


@dataclass
class Facts:
    """What the tables say.

    Attributes:
        kernels: of each architecture, cache and head size.
        compiled: whose compilation the tests check.
        ran: where a kernel ran, on which cards.
        interpreted: head sizes of each cache that the tests run on a CPU.
        features: that the series' decode and prefill take or not.
        other_caches: without a kernel of the series.
        releases: that the series is there for.

    """

    kernels: list[Kernel]
    compiled: set[Key]
    ran: dict[Key, set[str]]
    interpreted: dict[str, set[int]]
    features: list[Feature]
    other_caches: list[str]
    releases: list[Release] = field(default_factory=list)


def render(facts: Facts) -> str:
    """The Markdown between README's markers."""
    return "\n\n".join([_kernels(facts), _served(facts), _releases(facts)])


def _cell(kernel: Kernel, facts: Facts, beyond: bool) -> str:
    key = (kernel.cache, kernel.family, kernel.head_size, kernel.name)
    if key in facts.ran:
        state = "tested on " + ", ".join(sorted(facts.ran[key]))
    elif key in facts.compiled:
        state = COMPILED
    elif kernel.family == "other" and kernel.cache in facts.interpreted:
        sizes = ", ".join(map(str, sorted(facts.interpreted[kernel.cache])))
        state = f"interpreted in tests at {sizes}"
    else:
        state = UNTRIED
    return f"{'any' if beyond else f'to {kernel.rows}'}: {state}"


def _kernels(facts: Facts) -> str:
    by_reach = sorted(facts.kernels, key=lambda kernel: kernel.rows)
    names = list(dict.fromkeys(kernel.name for kernel in by_reach))
    most = max(kernel.rows for kernel in facts.kernels)
    cells: dict[tuple[str, str], dict[int, tuple[str, ...]]] = {}
    for cache, family, size in dict.fromkeys(
        (k.cache, k.family, k.head_size) for k in facts.kernels
    ):
        here = {
            k.name: _cell(k, facts, k.rows == most)
            for k in facts.kernels
            if (k.cache, k.family, k.head_size) == (cache, family, size)
        }
        row = tuple(here.get(name, "-") for name in names)
        cells.setdefault((cache, family), {})[size] = row
    by_heads = {
        place: tuple((tuple(sizes), row) for row, sizes in _grouped(rows).items())
        for place, rows in cells.items()
    }
    lines = []
    for cache in dict.fromkeys(cache for cache, _ in by_heads):
        alike = _grouped({f: rows for (c, f), rows in by_heads.items() if c == cache})
        for rows, families in alike.items():
            for sizes, row in rows:
                lines.append([cache, _families(families), _sizes(sizes, len(rows) == 1), *row])
    headings = ["cache", "architecture", "head size", *(f"{name}, query rows" for name in names)]
    return tabulate(lines, headers=headings, tablefmt="github")


def _grouped(items: dict[_K, _V]) -> dict[_V, list[_K]]:
    found: dict[_V, list[_K]] = {}
    for key, value in items.items():
        found.setdefault(value, []).append(key)
    return found


def _families(names: list[str]) -> str:
    words = ["others, no GPU" if name == "other" else name for name in names]
    return ", ".join(words)


def _sizes(sizes: tuple[int, ...], alone: bool) -> str:
    """Sizes in order; many of them, all multiples of 16 as it is, by their ends."""
    if len(sizes) > 3:
        return f"{'' if alone else 'others from '}{sizes[0]} to {sizes[-1]}"
    return ", ".join(map(str, sizes))


def _served(facts: Facts) -> str:
    by_answer: dict[tuple[bool, bool], list[str]] = {}
    for feature in facts.features:
        by_answer.setdefault((feature.decode, feature.prefill), []).append(feature.words)
    lines = []
    for answer, ways in _WAYS.items():
        if answer in by_answer:
            lines.append(f"- {ways}: {'; '.join(by_answer[answer])}.")
    others = ", ".join(f"`{name}`" for name in facts.other_caches)
    return (
        "Query rows are the query tokens of a request times the query heads of a KV head; a cell "
        "says on what, or at which head sizes, the kernel was tested. What runs decode "
        "(verification too) and prefill, by what a layer, step or run has. One thing is enough for "
        "the release's unified kernel (int4_kivi: the cache is gathered and attended to), and the "
        "log says which:\n\n" + "\n".join(lines) + "\n\n"
        f"The series has no kernel for these caches: {others}."
    )


def _releases(facts: Facts) -> str:
    lines = []
    for one in facts.releases:
        form = f"ports of {', '.join(one.ports)}" if one.ports else "the series itself"
        kernels = "the same files" if one.same_kernels else "differ: see the ports' messages"
        lines.append([one.version, form, kernels, ", ".join(one.cards) or "no GPU yet"])
    headings = ["vLLM", "form", "new kernels", "measured on"]
    return tabulate(lines, headers=headings, tablefmt="github", disable_numparse=True)
