"""patches/drafts/: what isn't in the series yet applies on top of it."""

import subprocess
from pathlib import Path

import pytest

from scripts.common import PATCHES, ROOT, VLLM
from scripts.series.lint import DRAFTS

FILES = sorted((PATCHES / DRAFTS).glob("*.patch"))


@pytest.mark.parametrize("draft", FILES, ids=lambda path: path.stem)
def test_a_draft_applies(draft: Path) -> None:
    """To the patched tree, or this repository's own where its name ends in -tools."""
    tree = ROOT if draft.stem.endswith("-tools") else VLLM
    command = ["git", "apply", "--check", str(draft)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    assert "Limits: a draft" in draft.read_text() or tree == ROOT
