"""What a plan costs, counted apart from the planner: by layer type, in pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from scripts.plan import planner


@dataclass(frozen=True)
class Cost:
    """A request of the longest length, and the groups that every step rebuilds."""

    pages: int
    full_pages: int
    groups: int

    def dominates(self, other: Cost) -> bool:
        """No worse in bytes and groups, and better in one of them."""
        mine, theirs = (self.pages, self.groups), (other.pages, other.groups)
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def cost(types: Sequence[tuple[int, Any]], size: int, context: int) -> Cost:
    """The cost of groups of `size` layers for types given as (layers, spec)."""
    config = planner.config(context)
    pages = full = groups = 0
    for layers, spec in types:
        split = ceil(layers / size)
        # A request never holds more blocks than its tokens fill.
        blocks = min(
            spec.max_memory_usage_bytes(config) // spec.page_size_bytes,
            spec.max_num_blocks_per_req(config, context),
        )
        groups += split
        pages += split * size * blocks
        if planner.grows(spec):
            full += split * size * blocks
    return Cost(pages, full, groups)


def layer_types(specs: dict[str, Any]) -> list[tuple[int, Any]]:
    """(layers, spec) of every type, in the planner's order."""
    counts: dict[Any, int] = {}
    for spec in specs.values():
        counts[spec] = counts.get(spec, 0) + 1
    return [(count, spec) for spec, count in counts.items()]


def group_size(groups: Sequence[Any]) -> int:
    return max(len(group.layer_names) for group in groups)
