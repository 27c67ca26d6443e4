"""The parts of the serving scripts that need no engine."""

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scripts.common import ROOT, Failure
from scripts.serving import child, mixed, models
from scripts.serving.engines import Settings, arguments

SETTINGS = Settings("m", "int8_per_token_head", "bfloat16", "dummy", 4096, 4, 2048, False)
WORKER = """
import sys
from scripts.common import Failure
from scripts.serving import child
def measure(job):
    print("the engine talks")
    child.progress(1, 2)
    if job["fail"] == "Failure":
        raise Failure("no such data: fetch it")
    if job["fail"]:
        raise ValueError("a fault")
    return {"twice": 2 * job["value"]}
child.serve(measure)
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A worker module without an engine."""
    (tmp_path / "lab_worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(child, "LOGS", tmp_path / "logs")
    return "lab_worker"


def measure(worker: str, **job: Any) -> Any:
    return child.measure(worker, job, "a label", Console(file=io.StringIO()))


def test_a_worker_answers_and_talks_into_its_log(worker: str) -> None:
    assert measure(worker, value=4, fail="") == {"twice": 8}
    logs = list(child.LOGS.iterdir())
    assert [log.name for log in logs] == ["lab_worker-a label.log"]
    assert "the engine talks" in logs[0].read_text()


@pytest.mark.parametrize(
    ("fail", "told"), [("Failure", "error: no such data: fetch it"), ("yes", "ValueError: a fault")]
)
def test_a_workers_fault_is_told_with_its_log(worker: str, fail: str, told: str) -> None:
    with pytest.raises(Failure, match=told) as raised:
        measure(worker, value=4, fail=fail)
    assert "a label failed" in str(raised.value) and "lab_worker-a label.log" in str(raised.value)


def test_graphs_are_captured_on_a_gpu_alone() -> None:
    graphs = replace(SETTINGS, graphs=[4, 1])
    compiled = arguments(graphs)["compilation_config"]
    assert compiled["cudagraph_mode"] == "FULL_DECODE_ONLY"
    assert compiled["cudagraph_capture_sizes"] == [1, 4]
    assert arguments(replace(graphs, interpreted=True))["enforce_eager"]
    assert arguments(SETTINGS)["enforce_eager"]


def test_a_step_takes_at_least_a_token_of_each_request() -> None:
    assert arguments(replace(SETTINGS, chunk=2, requests=4))["max_num_batched_tokens"] == 4


def test_an_engine_never_shares_prefixes_or_needs_a_tokenizer() -> None:
    made = arguments(SETTINGS)
    assert made["enable_prefix_caching"] is False and made["skip_tokenizer_init"] is True


def one_run(step_ms: list[float], arrival: int, first: int) -> dict[str, Any]:
    waited = sum(step_ms[arrival:first]) / 1e3
    return {
        "step_ms": step_ms,
        "arrival": arrival,
        "first": first,
        "first_token_s": {"running": 1.0, mixed.NEW: waited},
    }


def test_times_between_tokens_are_told_apart_from_those_alone() -> None:
    runs = [
        one_run([1.0, 1.0, 10.0, 20.0, 1.0], 2, 4),
        one_run([3.0, 3.0, 30.0, 40.0, 3.0], 2, 4),
        one_run([2.0, 2.0, 20.0, 30.0, 2.0], 2, 4),
    ]
    found = mixed.summary(runs)
    assert found["step_ms_p50"] == 25.0 and found["step_ms_max"] == 40.0
    assert found["alone_ms_p50"] == 2.0
    # The run that waited for the median time is the one shown.
    assert found["step_ms"] == runs[2]["step_ms"] and found["arrival"] == 2
    assert found["first_token_s"][mixed.NEW] == pytest.approx(0.05)


def test_bytes_are_the_tiny_models_tokens() -> None:
    text = models.Text(models.find(None, smoke=True))
    assert text.decode(text.encode("def f(x): ä")) == "def f(x): ä"
    assert max(text.encode("ä")) < models.TINY["vocab_size"]


def test_made_up_geometries_are_models_by_name() -> None:
    model = models.find("dummy-24q4kv-d256", smoke=False)
    assert (model.weights, model.dtype, model.limit) == ("dummy", "bfloat16", 262144)
    assert model.made_up and (Path(model.path) / "config.json").exists()


def test_an_unknown_model_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Failure, match="dummy-48q8kv-d128"):
        models.find("nobody/nothing", smoke=False)


SCRIPTS = ("decode_latency_serving", "longctx_code_serving", "mixed_serving")


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_script_imports_an_engine_before_it_is_told_to(script: str) -> None:
    # In a process of its own: other tests may have imported one.
    code = f"import scripts.{script}, sys; sys.exit('vllm' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
