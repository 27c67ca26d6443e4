"""What is in vllm/, in words."""

from __future__ import annotations

from pathlib import Path

from scripts.common import BASE_COMMIT, BASE_VERSION, Failure, series
from scripts.series import compare
from scripts.series import tree as trees


def report(tree: Path) -> str:
    """The base, how far the series is applied, what differs and what is dirty."""
    try:
        state = compare.compare(tree, series())
    except Failure as failure:
        return f"series  can't tell: {failure}"
    source = "git" if state.base == BASE_COMMIT else "from the release's sdist"
    lines = [f"base    v{BASE_VERSION} {BASE_COMMIT[:12]} ({source})"]
    lines.append(f"series  {state.describe()}")
    for number, patch in enumerate(state.patches):
        applied = number < state.applied
        remark = "  (message, author or date differ)" if patch in state.reworded else ""
        lines.append(f"  {'+' if applied else '-'} {patch.name}{remark}")
    for commit in state.extra:
        lines.append(f"  ? {commit[:12]} {trees.subject(tree, commit)} (not in patches/)")
    if state.extra or state.reworded:
        lines.append("        make export writes the stack to patches/")
    unfinished = trees.unfinished(tree)
    if unfinished:
        lines.append(f"git     in the middle of an operation ({unfinished})")
    edited = trees.dirty(tree)
    lines.append(f"edits   {len(edited)} uncommitted" if edited else "edits   none")
    if edited:
        lines.append(trees.listed(edited))
    return "\n".join(lines)
