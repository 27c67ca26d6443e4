"""No time of a kernel that is wrong: a step's output against attention in float64."""

from __future__ import annotations

import torch

from scripts.attention.step import Step
from scripts.common import Failure


def check(step: Step, same: torch.Tensor | None) -> dict[str, float]:
    """The step's errors, relative to all checked rows together; see `check_rows`.

    same: the checked rows of the format that it must agree with.
    """
    return check_rows(step, step.actual(), step.format.title, same)


def check_rows(
    step: Step, actual: torch.Tensor, title: str, same: torch.Tensor | None = None
) -> dict[str, float]:
    """The errors of the checked rows [rows, heads, head size] of an output.

    Raises Failure if one exceeds the format's bound, so that no time of a wrong kernel is printed.
    """
    form = step.format
    errors = {"error": (_distance(actual, step.expected()), form.bound)}
    if same is not None:
        errors["disagreement"] = (_distance(actual, same), form.agreement)
    for name, (error, bound) in errors.items():
        if not error <= bound:
            raise Failure(
                f"{title}, {step.batch.spec}, {step.geometry.name}: {name} {error:.1e} is over "
                f"{bound:.0e}, so it is not timed: the kernel is wrong\nits tests: make test-gpu"
            )
    return {name: error for name, (error, _) in errors.items()}


def _distance(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left - right).norm() / right.norm())
