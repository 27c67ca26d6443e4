"""The parts of the serving scripts that need no engine."""

import argparse
import gc
import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scripts.common import ROOT, Failure
from scripts.serving import cells, child, decode, dummy, engines, figures, formats, mixed, models
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


# Notes in a file what it does; job: that file, its name, turns, and what happens to it at a turn.
TAKING_TURNS = """
import os, signal, sys, time
from pathlib import Path
from scripts.serving import child
def measure(job):
    def note(what):
        with Path(job["file"]).open("a") as file:
            print(job["name"], what, file=file)
    def happens(when):
        what = job.get("at", {}).get(when)
        if what == "dies":
            print("no memory left", when, file=sys.stderr, flush=True)
            os._exit(3)
        if what == "interrupts":
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(60)
    happens("the start")
    time.sleep(job.get("slow", 0))
    note("is ready")
    for turn in range(job["turns"]):
        child.progress(turn, job["turns"])
        happens(f"the pause before {turn}")
        child.turn()
        happens(f"turn {turn}")
        note(f"begins {turn}")
        time.sleep(0.1)
        note(f"ends {turn}")
    child.progress(job["turns"], job["turns"])
    time.sleep(0.1)
    note("leaves")
    return {"name": job["name"]}
child.serve(measure)
"""


@pytest.fixture
def notes(tmp_path: Path, worker: str) -> Iterator[Path]:
    """The file where workers that take turns note what they do, and a minute for all of them."""

    def late(*_: Any) -> None:
        raise TimeoutError("parent and workers wait for each other")

    (tmp_path / "lab_turns.py").write_text(TAKING_TURNS)
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield tmp_path / "notes"
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes that a test's workers were; at its end all of them must have ended."""
    made: list[subprocess.Popen[str]] = []
    start = subprocess.Popen

    def kept(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
        made.append(start(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(subprocess, "Popen", kept)
    yield made
    left = [process for process in made if process.returncode is None]
    for process in left:
        process.kill()
    assert not left


def take_turns(notes: Path, turns: int = 2, **jobs: dict[str, Any]) -> dict[str, Any]:
    """The answers of workers that take turns, by name."""
    asked = {
        name: {"file": str(notes), "name": name, "turns": turns} | job for name, job in jobs.items()
    }
    return child.measure_in_turns("lab_turns", asked, Console(file=io.StringIO()))


def test_workers_take_turns_once_all_are_ready(notes: Path) -> None:
    answers = take_turns(notes, 3, a={"slow": 1}, b={}, c={})
    assert answers == {name: {"name": name} for name in "abc"}
    lines = notes.read_text().splitlines()
    assert sorted(lines[:3]) == ["a is ready", "b is ready", "c is ready"]
    # The first one is another in each turn, nobody's turn runs into the next one's, and who has
    # had the last one leaves before the next one begins.
    assert lines[3:] == [
        *(f"{name} {what} 0" for name in "abc" for what in ("begins", "ends")),
        *(f"{name} {what} 1" for name in "bca" for what in ("begins", "ends")),
        *(f"{name} {what}" for name in "cab" for what in ("begins 2", "ends 2", "leaves")),
    ]


def test_a_lone_worker_waits_for_no_turn(notes: Path) -> None:
    job = {"file": str(notes), "name": "a", "turns": 2}
    answer = child.measure("lab_turns", job, "a", Console(file=io.StringIO()))
    assert answer == {"name": "a"} and take_turns(notes, b={}) == {"b": {"name": "b"}}
    done = ["is ready", "begins 0", "ends 0", "begins 1", "ends 1", "leaves"]
    assert notes.read_text().splitlines() == [f"{name} {what}" for name in "ab" for what in done]


@pytest.mark.parametrize(
    "when", ["the start", "the pause before 0", "turn 0", "the pause before 1", "turn 1"]
)
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_worker_that_dies_ends_all(
    notes: Path, started: list[subprocess.Popen[str]], name: str, when: str
) -> None:
    jobs: dict[str, dict[str, Any]] = {"a": {}, "b": {}}
    jobs[name] = {"at": {when: "dies"}}
    with pytest.raises(Failure, match=f"{name} failed .*\nno memory left {when}$") as raised:
        take_turns(notes, **jobs)
    assert f"lab_turns-{name}.log" in str(raised.value) and len(started) == 2


def test_a_worker_that_died_while_another_had_its_turn_is_told(
    notes: Path, started: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def waiting(self: Any) -> None:
        # The parent writes to a process that has ended for certain.
        started[1].wait()
        turn(self)

    turn = child._Worker.turn
    monkeypatch.setattr(child._Worker, "turn", waiting)
    with pytest.raises(Failure, match="b failed"):
        take_turns(notes, a={}, b={"at": {"the pause before 0": "dies"}})


def test_an_interruption_leaves_no_worker(
    notes: Path, started: list[subprocess.Popen[str]]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        take_turns(notes, a={}, b={"at": {"turn 1": "interrupts"}})
    assert len(started) == 2


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


def test_turns_are_for_scripts_that_repeat_something() -> None:
    assert flags("--alternate").alternate is True
    assert flags().alternate is flags(context=None).alternate is False
    with pytest.raises(SystemExit):
        flags("--alternate", context=None)


def test_engines_at_the_same_time_take_no_shares_of_a_gpu() -> None:
    model = models.find("dummy-24q4kv-d256", smoke=False)

    def made(gpus: list[str], *words: str) -> Settings:
        run: Any = argparse.Namespace(gpus=gpus)
        return cells.settings(run, flags(*words), model, "auto", context=64, requests=1)

    for share in ([], ["--memory", "0.25"]):
        with pytest.raises(Failure, match="give the bytes of one cache, such as --memory 9GiB"):
            made(["one"], "--alternate", *share)
    assert made(["one"], "--alternate", "--memory", "9GiB").memory == 9 << 30
    assert made([], "--alternate").memory == made(["one"]).memory == 0.5


class Kept:
    """A run that keeps cells in memory."""

    gpus: tuple[str, ...] = ()
    values: dict[str, Any] = {}
    """Of all runs in a test."""

    def __init__(self, *_: Any, settings: dict[str, Any], **__: Any) -> None:
        self.console, self.settings = Console(file=io.StringIO()), settings
        self.cells = argparse.Namespace(values=self.values)

    def __enter__(self) -> "Kept":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def cell(self, name: str, measure: Any) -> Any:
        if name not in self.values:
            self.values[name] = measure()
        return self.values[name]

    def write(self, summary: dict[str, Any], found: dict[str, Any]) -> Any:
        return self.settings, summary


class Workers:
    """Stands for workers, each of which answers with its number; notes which were run together."""

    def __init__(self) -> None:
        self.together: list[list[str]] = []
        self.number = 0

    def measure(self, worker: str, job: dict[str, Any], label: str, console: Console) -> int:
        return self.measure_in_turns(worker, {label: job}, console)[label]

    def measure_in_turns(self, worker: str, jobs: dict[str, Any], console: Console) -> Any:
        assert {job["engine"]["cache"]: job["repeats"] for job in jobs.values()} == {
            cache: 3 for cache in jobs
        }
        self.together.append(list(jobs))
        self.number += len(jobs)
        return {cache: self.number - i for i, cache in enumerate(reversed(jobs))}


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    made = Workers()
    monkeypatch.setattr(Kept, "values", {})
    monkeypatch.setattr(cells, "Run", Kept)
    monkeypatch.setattr(child, "measure", made.measure)
    monkeypatch.setattr(child, "measure_in_turns", made.measure_in_turns)
    return made


def of_rounds(*words: str, processes: int = 2) -> tuple[dict[str, Any], Any]:
    """Cells, each the sum of its processes' answers, and settings and summary."""
    parsed = flags(*words)
    parsed.model = None
    found, told = cells.run(
        "lab",
        parsed,
        models.find(None, smoke=True),
        {"repeats": 3},
        label="x",
        worker="lab_turns",
        context=64,
        requests=1,
        compared=[figures.Figure("sum", "sum")],
        processes=processes,
        merge=lambda answers: {"sum": sum(answers)},
    )
    return found, told


BOTH = ("--caches", "auto", "int8_per_token_head")


def test_rounds_of_all_formats_are_measured_together(workers: Workers) -> None:
    found, (settings, summary) = of_rounds(*BOTH, "--alternate")
    assert workers.together == [["auto", "int8_per_token_head"]] * 2
    assert found == {"auto": {"sum": 1 + 3}, "int8_per_token_head": {"sum": 2 + 4}}
    assert settings["alternate"] is True and settings["processes"] == 2
    assert summary["ratio"]["int8_per_token_head"] == {"sum": 1.5}
    assert list(Kept.values) == [
        f"{cache}, process {number}" for number in (1, 2) for cache in BOTH[1:]
    ]


def test_formats_are_measured_one_by_one_otherwise(workers: Workers) -> None:
    found, (settings, _) = of_rounds(*BOTH)
    assert workers.together == [["auto"], ["int8_per_token_head"]] * 2
    assert found == {"auto": {"sum": 1 + 3}, "int8_per_token_head": {"sum": 2 + 4}}
    assert settings["alternate"] is False


def test_a_round_that_is_kept_is_not_measured_again(workers: Workers) -> None:
    Kept.values |= {"auto, process 1": 10, "int8_per_token_head, process 1": 20}
    # Of the second round one cell alone: what it is to be compared with wasn't beside it.
    Kept.values |= {"auto, process 2": 30}
    found, _ = of_rounds(*BOTH, "--alternate")
    assert workers.together == [["auto", "int8_per_token_head"]]
    assert found == {"auto": {"sum": 10 + 1}, "int8_per_token_head": {"sum": 20 + 2}}


def test_one_by_one_each_kept_cell_counts(workers: Workers) -> None:
    Kept.values |= {"auto, process 1": 10, "auto, process 2": 30}
    found, _ = of_rounds(*BOTH)
    assert workers.together == [["int8_per_token_head"]] * 2
    assert found == {"auto": {"sum": 10 + 30}, "int8_per_token_head": {"sum": 1 + 2}}


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("turns", [[], ["--alternate"]])
def test_a_finished_run_is_not_measured_again(
    workers: Workers, turns: list[str], processes: int
) -> None:
    # A result holds merged cells alone.
    finished = {"auto": {"sum": 10}, "int8_per_token_head": {"sum": 20}}
    Kept.values |= finished
    assert of_rounds(*BOTH, *turns, processes=processes)[0] == finished
    assert workers.together == []
    of_rounds(*BOTH, "int4_kivi", *turns, processes=1)
    assert workers.together == [[*BOTH[1:], "int4_kivi"] if turns else ["int4_kivi"]]


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
    during = step_ms[arrival:first]
    return {
        "step_ms": step_ms,
        "arrival": arrival,
        "first": first,
        "tokens_per_step": {"alone": 1.0, "during": 1.0},
        "first_token_s": {"running": 1.0, mixed.NEW: sum(during) / 1e3},
        "longest": {"ms": max(during), "step": during.index(max(during))},
    }


def test_times_between_tokens_are_told_apart_from_those_alone() -> None:
    runs = [
        one_run([1.0, 1.0, 10.0, 20.0, 1.0], 2, 4),
        one_run([3.0, 3.0, 30.0, 40.0, 3.0], 2, 4),
        one_run([2.0, 2.0, 20.0, 30.0, 2.0], 2, 4),
    ]
    found = mixed.summary(runs)
    assert found["step_ms_p50"] == 25.0 and found["step_ms_max"] == 40.0
    assert found["during_ms"] == [[10.0, 20.0], [30.0, 40.0], [20.0, 30.0]]
    assert found["longest"] == {"ms": 40.0, "step": 1, "arrival": 1}
    assert found["alone_ms_p50"] == 2.0
    # The run that waited for the median time is the one shown.
    assert found["step_ms"] == runs[2]["step_ms"] and found["arrival"] == 2
    assert found["first_token_s"][mixed.NEW] == pytest.approx(0.05)


def test_processes_are_put_together() -> None:
    answers = [
        {
            "runs": [one_run([1.0, ms, 2.00049, 1.0], 1, 3)],
            "cold": {"step_ms_max": ms, "longest_ms": 2 * ms},
            "capacity": {"tokens_held": 64},
        }
        for ms in (10.0, 30.0, 80.0)
    ]
    found = mixed.merge(answers)
    assert found["step_ms_p50"] == pytest.approx(6.0, abs=1e-3) and found["repeats"] == 3
    assert found["step_ms_p50_of_processes"] == pytest.approx([6.0, 16.0, 41.0], abs=1e-3)
    # Arrival by arrival of all processes; one of them was held up.
    assert found["during_ms"] == [[10.0, 2.0], [30.0, 2.0], [80.0, 2.0]]
    assert found["longest_ms_p50"] == 30.0 and found["step_ms_max"] == 80.0
    assert found["longest"] == {"ms": 80.0, "step": 0, "arrival": 2}
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
        replace(taken(9, running_0=1, running_1=1, arriving=1), gc_ms=40.0, switches=3),
        taken(0.2, running_0=1, running_1=1, arriving=1),
    ]
    engine = Scripted(steps, drafts=2)
    job = {"vocabulary": 256, "running": 2, "context": 8, "arriving": 12, "around": 1}
    run = mixed.arrival(engine, job, seed=0)
    assert run["step_ms"] == [100, 4000, 9000, 200] and run["prefill_ms"] == [1000, 2000, 3000]
    assert (run["arrival"], run["first"]) == (1, 3)
    assert run["longest"] == {"ms": 9000, "gc_ms": 40.0, "switches": 3, "step": 1}
    assert run["first_token_s"] == {"first running": 3, "running": 6, mixed.NEW: 13}
    assert run["tokens_per_step"] == {"alone": 2, "during": 1}
    assert mixed.cold(run) == {"step_ms_max": 9000, "longest_ms": 9000}
    assert {name: len(made) for name, made in engine.prompts.items()} == {
        "running 0": 8, "running 1": 8, mixed.NEW: 12,
    }  # fmt: skip
    assert engine.dropped == set(engine.prompts)


def test_a_step_says_what_held_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def collect() -> list[Any]:
        gc.collect()
        return []

    counts = iter([7, 7, 8, 12])
    monkeypatch.setattr(engines, "switches", lambda: next(counts))
    work = iter([list, collect])
    engine = Scripted([])
    engine.settings = replace(SETTINGS, interpreted=True)
    engine._engine = argparse.Namespace(step=lambda: next(work)())
    engine._collections = engines.Collections()
    gc.disable()
    try:
        quiet, collecting = Engine.step(engine), Engine.step(engine)
    finally:
        gc.enable()
        gc.callbacks.remove(engine._collections)
    assert (quiet.gc_ms, quiet.switches) == (0, 0)
    assert 0 < collecting.gc_ms <= collecting.seconds * 1e3 and collecting.switches == 4


def test_switches_are_those_that_the_system_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    told = argparse.Namespace(ru_nvcsw=5, ru_nivcsw=9)
    monkeypatch.setattr(engines.resource, "getrusage", {engines.resource.RUSAGE_SELF: told}.get)
    assert engines.switches() == 9


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
