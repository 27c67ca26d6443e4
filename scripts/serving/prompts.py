"""Prompts of made-up tokens."""

from __future__ import annotations

import random

# Tokens after which a prompt repeats itself.
PERIOD = 64


def prompt(length: int, vocabulary: int, seed: int, *, repeating: bool = False) -> list[int]:
    """Random tokens, none of the special ones at the vocabulary's start.

    repeating: the same few again and again, so that a drafter that looks them up finds them.
    """
    chosen = random.Random(seed)
    period = min(PERIOD, max(1, length // 2)) if repeating else length
    base = [chosen.randrange(10, vocabulary) for _ in range(period)]
    return (base * (length // period + 1))[:length] if repeating else base
