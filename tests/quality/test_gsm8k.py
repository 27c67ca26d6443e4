"""GSM8K: what is told where lm-eval or its data is missing, and where an answer ends."""

import importlib.util
from pathlib import Path

import pytest

from scripts.common import Failure
from scripts.quality import gsm8k


def installed(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if there else None)


def test_without_lm_eval_its_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, False)
    with pytest.raises(Failure, match=f"pip install {gsm8k.REQUIREMENT}"):
        gsm8k.require(None)


def test_a_folder_without_the_data_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(monkeypatch, True)
    (tmp_path / "train.jsonl").touch()
    with pytest.raises(Failure, match="no test.jsonl"):
        gsm8k.require(tmp_path)
    (tmp_path / "test.jsonl").touch()
    gsm8k.require(tmp_path)
    gsm8k.require(None)


def test_an_answer_ends_at_the_first_stop() -> None:
    assert gsm8k._before("6 #### 6\n\nQuestion: 7</s>", ["</s>", "Question:"]) == "6 #### 6\n\n"
    assert gsm8k._before("6", ["Question:"]) == "6"
