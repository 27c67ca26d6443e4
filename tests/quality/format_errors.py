"""Relative errors of rows that went through cache formats; in a process that may import vllm.

`python format_errors.py FORMAT...` prints format -> {rows: error}, or why it is refused.
"""

import json
import os
import sys

from interpreted_platform import environment


def rows() -> dict[str, "torch.Tensor"]:  # noqa: F821
    """Kinds of rows, [tokens, heads, head size]."""
    import torch

    random = torch.Generator().manual_seed(0)
    noise = torch.randn(40, 2, 64, generator=random)
    outlier = noise.clone()
    outlier[..., 0] += 100
    one_hot = torch.zeros(1, 2, 64)
    one_hot[..., 0] = 2
    return {"noise": noise, "outlier": outlier, "one_hot": one_hot, "zero": torch.zeros(3, 2, 64)}


def errors(name: str) -> dict[str, float]:
    """Norm of the difference over the norm of the rows (1 for zero rows); keys are negated."""
    import torch

    from scripts.quality.formats import round_trip

    trip = round_trip(name, torch.float32)
    found = {}
    for kind, value in rows().items():
        key, back = trip(-value, value)
        assert key.shape == value.shape and key.dtype == back.dtype == torch.float32
        for got, right in ((key, -value), (back, value)):
            size = right.norm() if right.any() else 1.0
            found[kind] = max(found.get(kind, 0.0), float((got - right).norm() / size))
        if kind == "outlier":
            # Of the other channels.
            found["key outlier"] = float((key + value)[..., 1:].norm() / value[..., 1:].norm())
    return found


if __name__ == "__main__":
    os.environ.update(environment())
    from scripts.common import Failure
    from scripts.harness import engine

    engine.put_first()
    told = {}
    for asked in sys.argv[1:]:
        try:
            told[asked] = errors(asked)
        except Failure as failure:
            told[asked] = str(failure)
    print(json.dumps(told))
