"""The demo's arguments, figures and checks; `make demo` itself is run by hand and by CI."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from scripts import model
from scripts.common import Failure
from scripts.demo import report
from scripts.demo.__main__ import arguments
from scripts.demo.settings import CACHES, PROMPTS, for_device
from scripts.demo.worker import engine_arguments, environment


@pytest.mark.parametrize("tokens", ["1", "0", "201", "x"])
def test_a_wrong_number_of_tokens_is_refused(
    tokens: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        arguments(["--tokens", tokens])
    assert raised.value.code == 2
    assert "--tokens" in capsys.readouterr().err


def test_the_number_of_tokens_is_taken_over() -> None:
    assert for_device(gpu=False, tokens=arguments(["--tokens", "3"]).tokens).tokens == 3
    assert for_device(gpu=True).tokens > for_device(gpu=False).tokens


def test_only_without_a_gpu_kernels_are_interpreted() -> None:
    native, interpreted = for_device(gpu=True), for_device(gpu=False)
    assert "TRITON_INTERPRET" not in environment(native)
    assert environment(interpreted)["TRITON_INTERPRET"] == "1"
    assert engine_arguments(native, CACHES[1], "m")["dtype"] == "bfloat16"
    assert engine_arguments(interpreted, CACHES[1], "m")["enforce_eager"]


def run(cache: str, held: int, tokens: list[list[int]]) -> dict[str, object]:
    texts = ["text"] * len(PROMPTS)
    return {"cache": cache, "bytes_per_token": 64.0, "tokens_held": held, "tokens": tokens} | {
        "texts": texts,
        "step_s": 0.5,
    }


def test_agreement_ends_at_the_first_difference() -> None:
    assert report.agreement([1, 2, 3, 4], [1, 2, 9, 4]) == 2
    assert report.agreement([1, 2], [1, 2]) == 2


def test_the_table_compares_with_the_first_cache() -> None:
    same, other = [[1, 2]] * len(PROMPTS), [[1, 2]] * (len(PROMPTS) - 1) + [[3, 2]]
    runs = [run("auto", 100, same), run("int8_per_token_head", 376, other)]
    rows = report.summarise(runs)
    assert rows[1]["held_ratio"] == pytest.approx(3.76)
    assert rows[1]["equal_tokens"] == [2, 2, 2, 0]
    settings = for_device(gpu=False)
    result = {
        "settings": settings.dump(),
        "summary": rows,
        "runs": runs,
        "machine": "cpu",
        "model": "m",
    }
    console = Console(record=True, width=120, file=io.StringIO())
    report.render(console, result)
    shown = console.export_text()
    assert "6 of 8" in shown and "3.76 x" in shown and "interpreted" in shown


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    weights = tmp_path / "weights.gguf"
    weights.write_bytes(b"not the weights")
    with pytest.raises(Failure, match="sha256"):
        model.check(weights, model.SHA256)


def test_a_failed_download_leaves_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path) -> Path:
        (folder / "half").write_bytes(b"half")
        raise Failure("the network is gone")

    monkeypatch.setattr(model, "MODELS", tmp_path)
    monkeypatch.setattr(model, "download", fail)
    with pytest.raises(Failure, match="network"):
        model.ensure()
    assert list(tmp_path.iterdir()) == []
