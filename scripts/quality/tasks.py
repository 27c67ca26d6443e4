"""The tasks of the paired comparison: prompts in, a verdict for each answer out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scripts.harness import stats
from scripts.quality import humaneval


@dataclass(frozen=True)
class Answer:
    """To one question: right or not, why not, and whether it was cut off before its end."""

    right: bool
    truncated: bool
    why: str = ""

    def record(self) -> dict[str, Any]:
        return {"right": self.right, "truncated": self.truncated, "why": self.why}


def judge_humaneval(
    problems: list[dict[str, Any]], answers: list[dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """task_id -> Answer's record, of answers as scripts.serving.generate gives them."""
    outcomes = humaneval.check(problems, [answer["text"] for answer in answers])
    return {
        problem["task_id"]: Answer(
            outcome.passed,
            answer["finish"] == "length" and not humaneval.cut(answer["text"])[1],
            outcome.why,
        ).record()
        for problem, answer, outcome in zip(problems, answers, outcomes, strict=True)
    }


def paired(
    reference: dict[str, dict[str, Any]], other: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Lost and gained answers and the exact McNemar p-value.

    A truncated answer is neither right nor wrong: its question is left out of both sides and
    counted in `truncated` (and apart for each side).
    """
    whole = [q for q in reference if not (reference[q]["truncated"] or other[q]["truncated"])]
    lost = [q for q in whole if reference[q]["right"] and not other[q]["right"]]
    gained = [q for q in whole if other[q]["right"] and not reference[q]["right"]]
    return {
        "n": len(whole),
        "right": sum(other[q]["right"] for q in whole),
        "lost": len(lost),
        "gained": len(gained),
        "p_value": stats.mcnemar(len(lost), len(gained)),
        "truncated": len(reference) - len(whole),
        "truncated_reference": sum(answer["truncated"] for answer in reference.values()),
        "truncated_this": sum(answer["truncated"] for answer in other.values()),
        "lost_questions": lost,
        "gained_questions": gained,
        "answers": other,
    }
