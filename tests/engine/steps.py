"""The steps of an engine that may have computed what its cache holds of a request."""

from itertools import pairwise

BLOCK = 16
Steps = list[tuple[int, int]]


def latest_start(edges: list[int]) -> int:
    """Where a request's edges since its latest start begin; a preempted one begins again at 0."""
    return len(edges) - 1 - edges[::-1].index(0)


def histories(edges: list[int], before: list[int], chunk: int) -> list[Steps]:
    """First and end token of each step, for every history that the edges allow.

    `edges` are the request's, of which those from its latest start count. If it then finds a prefix
    in the cache, the prefix is what an earlier start (or the request of the edges `before`) had
    computed; how long it was doesn't show, but a step takes `chunk` tokens at most.
    """
    start = latest_start(edges)
    earlier, latest = before or edges[:start], edges[start:]
    found = [0]
    if latest[1] > chunk:
        found = list(range(-(-(latest[1] - chunk) // BLOCK) * BLOCK, latest[1], BLOCK))
    return [
        list(pairwise([edge for edge in earlier if edge < hit] + [hit] + latest[1:]))
        for hit in found
    ]


def forgotten(edges: list[int], prompt: int) -> int:
    """How many of the answer's tokens came before the latest start of a request."""
    return max(max(edges[: latest_start(edges)], default=0) - prompt + 1, 0)
