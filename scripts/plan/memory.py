"""Sizes of memory as people write them."""

from __future__ import annotations

import re

from scripts.common import Failure

UNITS = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", 1)
    for suffix, base in (("", 1024), ("iB", 1024), ("B", 1000))
}


def memory_bytes(text: str) -> int:
    """Bytes of a size such as 12GiB, 12G (the same), 12GB (powers of 1000) or 8589934592.

    Raises Failure on anything else.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    size = int(float(match[1]) * UNITS[match[2]]) if match and match[2] in UNITS else 0
    if not size:
        raise Failure(f"no memory size: {text!r}\ngive one such as 12GiB, 900MiB or 24GB")
    return size
