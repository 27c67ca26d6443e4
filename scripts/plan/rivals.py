"""Other rules for the number of layers per cache group, to compare with: each in its own words.

Every rule takes the number of layers of each type and which types are full attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import compress

Rule = Callable[[Sequence[int], Sequence[bool]], int]


def groups(counts: Sequence[int], size: int) -> int:
    """How many groups of `size` layers hold all layers, one type a group."""
    return sum(math.ceil(count / size) for count in counts)


def slots(counts: Sequence[int], size: int) -> int:
    """Layers and padding of those groups."""
    return size * groups(counts, size)


def stock(counts: Sequence[int], full: Sequence[bool]) -> int:
    """v0.31.0: the smallest count, or the largest if that is below 1.5 times the smallest."""
    return max(counts) if max(counts) < 1.5 * min(counts) else min(counts)


def least_padding(counts: Sequence[int], full: Sequence[bool]) -> int:
    """#49472: least padding layers plus groups; fewer groups among equals."""
    padding = {size: slots(counts, size) - sum(counts) for size in range(1, max(counts) + 1)}
    return min(
        padding, key=lambda size: (padding[size] + groups(counts, size), groups(counts, size))
    )


def full_divisor(counts: Sequence[int], full: Sequence[bool]) -> int:
    """#58175: the largest divisor of the full-attention counts up to the stock size."""
    size = stock(counts, full)
    if size == max(counts) or not any(full):
        return size
    common = math.gcd(*compress(counts, full))
    return max(divisor for divisor in range(1, size + 1) if common % divisor == 0)


def common_divisor(counts: Sequence[int], full: Sequence[bool]) -> int:
    """#56445: the greatest common divisor; the stock size if it is 1 or counts nearly equal."""
    size, divisor = stock(counts, full), math.gcd(*counts)
    return size if divisor == 1 or size == max(counts) else divisor


RIVALS: dict[str, Rule] = {
    "#49472": least_padding,
    "#58175": full_divisor,
    "#56445": common_divisor,
}
