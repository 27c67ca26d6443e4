"""The parts of the serving scripts that need no engine."""

import argparse
import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scripts.common import ROOT, Failure
from scripts.serving import cells, child, decode, dummy, figures, formats, mixed, models
from scripts.serving.engines import Engine, Settings, Step, arguments
from scripts.serving.prompts import PERIOD, prompt

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
    few = replace(SETTINGS, chunk=2, requests=4)
    assert arguments(few)["max_num_batched_tokens"] == 4
    assert arguments(replace(few, drafts=2))["max_num_batched_tokens"] == 12


def test_drafts_come_from_n_grams_and_graphs_fit_them() -> None:
    assert "speculative_config" not in arguments(SETTINGS)
    made = arguments(replace(SETTINGS, graphs=[1, 2, 4, 9], drafts=5))
    assert made["speculative_config"]["method"] == "ngram"
    assert made["speculative_config"]["num_speculative_tokens"] == 5
    assert made["compilation_config"]["cudagraph_capture_sizes"] == [6, 12, 24, 54]


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        # Of the bytes no share of the GPU is asked beside them, so that others may be on it.
        ("9GiB", {"kv_cache_memory_bytes": 9 << 30, "gpu_memory_utilization": 0.01}),
        ("1048576", {"kv_cache_memory_bytes": 1 << 20, "gpu_memory_utilization": 0.01}),
        ("0.25", {"gpu_memory_utilization": 0.25}),
        ("1", {"gpu_memory_utilization": 1.0}),
    ],
)
def test_memory_is_the_caches_bytes_or_a_share_of_the_gpus(
    text: str, taken: dict[str, float]
) -> None:
    made = arguments(replace(SETTINGS, memory=cells.memory(text)))
    kinds = {"kv_cache_memory_bytes", "gpu_memory_utilization"}
    assert {name: value for name, value in made.items() if name in kinds} == taken


@pytest.mark.parametrize("text", ["0", "-1", "nan", "much"])
def test_no_memory_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="no memory size"):
        cells.memory(text)


def flags(*words: str, context: int | None = 64) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cells.add_flags(parser, context=context)
    return parser.parse_args(words)


def test_drafts_are_for_scripts_that_make_their_prompts_up() -> None:
    assert flags("--drafts", "3").drafts == 3
    assert flags().drafts == flags(context=None).drafts == 0
    for wrong in (["--drafts", "-1"], ["--drafts", "few"]):
        with pytest.raises(SystemExit):
            flags(*wrong)
    with pytest.raises(SystemExit):
        flags("--drafts", "3", context=None)


def test_a_format_is_taken_if_the_tree_knows_it(tmp_path: Path) -> None:
    assert {*cells.CACHES, "fp8"} <= set(formats.known())
    with pytest.raises(Failure, match="make apply"):
        formats.require("auto", tmp_path)
    listed = tmp_path / formats.LISTED
    listed.parent.mkdir(parents=True)
    listed.write_text('CacheDType = Literal["auto", "int4_kivi"]\n')
    formats.require("int4_kivi", tmp_path)
    with pytest.raises(Failure, match="int3: it knows auto, int4_kivi\n.*make apply"):
        formats.require("int3", tmp_path)
    listed.write_text("CacheDType = str\n")
    with pytest.raises(Failure, match="can't be told"):
        formats.known(tmp_path)


def test_an_unknown_format_is_refused_before_any_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: Any) -> None:
        raise AssertionError("an engine was started")

    monkeypatch.setattr(child, "measure", started)
    with pytest.raises(Failure, match="no cache format int3"):
        # As cells.run does it for all formats, before the first is measured.
        cells.settings(
            argparse.Namespace(gpus=[]),
            flags(),
            models.find("dummy-24q4kv-d256", smoke=False),
            "int3",
            context=64,
            requests=1,
        )


def test_graphs_can_be_left_out() -> None:
    def graphs(*more: str) -> list[int]:
        model = models.find("dummy-24q4kv-d256", smoke=False)
        run: Any = argparse.Namespace(gpus=["one"])
        made = cells.settings(run, flags(*more), model, "auto", context=64, requests=3)
        return made.graphs

    assert graphs() == [1, 2, 3]
    assert graphs("--eager") == []


def test_an_engine_never_shares_prefixes_or_needs_a_tokenizer() -> None:
    made = arguments(SETTINGS)
    assert made["enable_prefix_caching"] is False and made["skip_tokenizer_init"] is True


def one_run(step_ms: list[float], arrival: int, first: int) -> dict[str, Any]:
    waited = sum(step_ms[arrival:first]) / 1e3
    return {
        "step_ms": step_ms,
        "arrival": arrival,
        "first": first,
        "tokens_per_step": {"alone": 1.0, "during": 1.0},
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


def test_processes_are_put_together() -> None:
    answers = [
        {
            "runs": [one_run([1.0, ms, 1.0], 1, 2)],
            "cold": {"step_ms_max": ms, "longest_ms": 2 * ms},
            "capacity": {"tokens_held": 64},
        }
        for ms in (10.0, 30.0, 80.0)
    ]
    found = mixed.merge(answers)
    assert found["step_ms_p50"] == 30.0 and found["repeats"] == 3
    assert found["step_ms_p50_of_processes"] == [10.0, 30.0, 80.0]
    assert found["cold"] == {"step_ms_max": 80.0, "longest_ms": 160.0}
    assert found["tokens_held"] == 64


class Scripted(Engine):
    """An engine whose steps are given."""

    def __init__(self, steps: list[Step], drafts: int = 0) -> None:
        self.settings = replace(SETTINGS, drafts=drafts)
        self.script = iter(steps)
        self.prompts: dict[str, list[int]] = {}
        self.dropped: set[str] = set()

    def add(self, name: str, prompt: list[int], tokens: int, ends: Any = None) -> None:
        self.prompts[name] = prompt

    def step(self) -> Step:
        return next(self.script)

    def steps(self) -> Any:
        return self.script

    def drop(self, *names: str) -> None:
        self.dropped |= set(names)


def taken(seconds: float, **tokens: int) -> Step:
    """A step that gives so many tokens to requests, `running_0` to "running 0"."""
    named = {name.replace("_", " "): [7] * count for name, count in tokens.items()}
    return Step(seconds, named, {})


def test_an_arrival_is_told_step_by_step() -> None:
    steps = [
        taken(1),
        taken(2, running_0=1),
        taken(3, running_0=2, running_1=1),
        # Alone, while the prompt is taken in, and afterwards.
        taken(0.1, running_0=3, running_1=1),
        taken(4, running_0=1),
        taken(9, running_0=1, running_1=1, arriving=1),
        taken(0.2, running_0=1, running_1=1, arriving=1),
    ]
    engine = Scripted(steps, drafts=2)
    job = {"vocabulary": 256, "running": 2, "context": 8, "arriving": 12, "around": 1}
    run = mixed.arrival(engine, job, seed=0)
    assert run["step_ms"] == [100, 4000, 9000, 200] and run["prefill_ms"] == [1000, 2000, 3000]
    assert (run["arrival"], run["first"]) == (1, 3)
    assert run["first_token_s"] == {"first running": 3, "running": 6, mixed.NEW: 13}
    assert run["tokens_per_step"] == {"alone": 2, "during": 1}
    assert mixed.cold(run) == {"step_ms_max": 9000, "longest_ms": 9000}
    assert {name: len(made) for name, made in engine.prompts.items()} == {
        "running 0": 8, "running 1": 8, mixed.NEW: 12,
    }  # fmt: skip
    assert engine.dropped == set(engine.prompts)


def test_a_stream_counts_tokens_and_leaves_the_first_steps_out() -> None:
    settling = [taken(5, one=1)] * decode.SETTLE
    engine = Scripted([taken(1), taken(2, one=1), *settling, *[taken(3, one=2)] * 9], drafts=2)
    run = decode.stream(engine, {"context": 8, "vocabulary": 256, "tokens": 3}, seed=0)
    assert run == {
        "step_ms": 3000, "tokens_per_step": 2, "first_token_s": 3, "longest_ms": 5000,
    }  # fmt: skip
    # Two steps were enough for three tokens.
    assert len(list(engine.script)) == 9 - 2 and engine.dropped == {"one"}
    told = decode.summary([run | {"longest_ms": 9000}, run, run])
    assert told["ms_per_token"]["p50"] == 1500 and told["step_ms"]["p50"] == 3000
    assert told["cold"] == {"longest_ms": 9000} and told["longest_ms"] == 5000


def test_a_drafter_finds_what_repeats() -> None:
    assert prompt(200, 256, 1) == prompt(200, 256, 1) != prompt(200, 256, 2)
    made = prompt(200, 256, 1, repeating=True)
    assert len(made) == 200 and made[PERIOD:] == made[:-PERIOD]
    short = prompt(7, 256, 1, repeating=True)
    assert len(short) == 7 and short[3:] == short[:-3]
    assert len(prompt(1, 256, 1, repeating=True)) == 1


def test_formats_are_compared_with_the_first() -> None:
    columns = (
        figures.Figure("ms", "step.p50"),
        figures.Figure("cold", "cold", compared=False),
        figures.Figure("drafts", "drafts", ".0f"),
    )
    found = {
        "auto": {"step": {"p50": 4.0}, "cold": 9.0, "drafts": 0},
        "int8": {"step": {"p50": 3.0}, "cold": 8.0, "drafts": 2},
    }
    assert figures.summary(found, columns) == {
        "reference": "auto", "ratio": {"int8": {"step.p50": 0.75}},
    }  # fmt: skip
    assert figures.table(found, columns) == (
        ["cache", "ms", "cold", "drafts"],
        [
            ["auto", "4.00", "9.00", "0"],
            ["int8", "3.00", "8.00", "2"],
            ["int8, over auto", "0.750", "-", "-"],
        ],
    )


def test_bytes_are_the_tiny_models_tokens() -> None:
    text = models.Text(models.find(None, smoke=True))
    assert text.decode(text.encode("def f(x): ä")) == "def f(x): ä"
    assert max(text.encode("ä")) < models.TINY["vocab_size"]


def test_made_up_geometries_are_models_by_name() -> None:
    model = models.find("dummy-24q4kv-d256", smoke=False)
    assert (model.weights, model.dtype, model.limit) == ("dummy", "bfloat16", 262144)
    assert model.made_up and (Path(model.path) / "config.json").exists()


def test_a_geometry_of_the_planner_is_a_model_of_its_full_layers() -> None:
    # The model that patches 0003 to 0006 name by its heads.
    assert dummy.config("dummy-qwen3.6-27b") == dummy.config("dummy-24q4kv-d256")
    made = dummy.config("dummy-laguna-xs.2") or {}
    assert made["num_hidden_layers"] == 10 and made["max_position_embeddings"] == 131072
    heads = ("num_attention_heads", "num_key_value_heads", "head_dim")
    assert [made[key] for key in heads] == [48, 8, 128]
    assert models.find("dummy-laguna-xs.2", smoke=False).limit == 131072


def test_a_smoke_run_of_made_up_weights_takes_the_tiny_model() -> None:
    assert models.find("dummy-24q4kv-d256", smoke=True) == models.find(None, smoke=True)


def test_heads_by_number_are_a_model_of_16_layers() -> None:
    made = dummy.config("dummy-48q8kv-d128")
    assert made == {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
        "hidden_size": 2048,
        "intermediate_size": 4096,
        "num_hidden_layers": 16,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 262144,
        "rope_theta": 1e6,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
    }


ROW = """
[{name}]
title = "x"
context = 4096
{heads}
types = [{types}]
"""
FULL = "{ kind = 'full', layers = 2, kv_heads = 2, head_size = 64 }"
SLIDING = "{ kind = 'sliding', layers = 6, kv_heads = 2, head_size = 64, window = 128 }"


@pytest.mark.parametrize(
    ("types", "heads", "fits"),
    [
        (f"{SLIDING}, {FULL}", "query_heads = 8", True),
        (FULL, "", False),
        (SLIDING, "query_heads = 8", False),
        (f"{FULL}, {FULL.replace('64', '128')}", "query_heads = 8", False),
        (FULL.replace("64", "64, head_size_v = 32"), "query_heads = 8", False),
    ],
)
def test_a_geometry_fits_with_one_kind_of_full_layers_and_known_heads(
    tmp_path: Path, types: str, heads: str, fits: bool
) -> None:
    file = tmp_path / "geometries.toml"
    file.write_text(ROW.format(name="x", heads=heads, types=types))
    found = dummy.of_geometries(file)
    assert set(found) == ({"x"} if fits else set())
    assert not fits or (found["x"]["num_hidden_layers"], found["x"]["head_dim"]) == (2, 64)


@pytest.mark.parametrize("name", ["qwen3.6-27b", "dummy-nothing", "dummy-24q4kv"])
def test_other_names_are_no_made_up_model(name: str) -> None:
    assert dummy.config(name) is None


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
