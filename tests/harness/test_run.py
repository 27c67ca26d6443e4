"""A run from its refusals to its file: resuming, after a kill too, and what the file records."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

import pytest
from harness_lab import GPU, HERE, Bench

from scripts.harness import inputs

RESULT = "results/cpu/counting/result.json"
ON_GPU = "results/h200/counting/result.json"


def test_a_result_says_where_it_comes_from(bench: Bench) -> None:
    bench.run("--size", "3")
    found = bench.result(RESULT)
    head = bench.stack.git("rev-parse", "HEAD", cwd=bench.stack.root).strip()
    assert found["series"]["commit"] == head
    assert found["series"]["stack"] == bench.stack.head()
    assert found["series"]["patches"] == bench.stack.names()
    assert found["series"]["variant"] == "new"
    assert shlex.split(found["command"])[1:] == [str(HERE / "counting_bench.py"), "--size", "3"]
    assert found["settings"] == {"size": 3, "smoke": False, "repeats": None}
    assert found["cells"] == {name: {"figure": float(ord(name))} for name in "abcd"}
    assert found["dirty"] == [] and found["environment"]["gpus"] == []
    assert not list((bench.stack.root / ".work").rglob("*.json")), "no partial file is left"


def test_on_a_gpu_it_records_card_clocks_and_slowdowns(bench: Bench) -> None:
    bench.gpus(GPU | {"applications": 1410, "reasons": 4 + 64})
    bench.run(GPUS="1")
    environment = bench.result(ON_GPU)["environment"]
    (card,) = environment["gpus"]
    assert (card["name"], card["uuid"], card["driver"]) == ("NVIDIA H200", "GPU-aaaa", "580.1")
    assert card["capability"] == 90
    assert card["clocks_locked"] is True and card["sm_clock_mhz"]["applications"] == 1410
    assert environment["load"] == {
        "sm_clock_mhz": [1755, 1755],
        "slowdowns": ["hardware thermal slowdown", "power limit"],
    }


def test_killed_it_goes_on_where_it_was(bench: Bench) -> None:
    process = bench.start(WAIT="c")
    assert process.stdout is not None
    for line in process.stdout:
        if "waiting" in line:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert bench.log == ["a", "b", "c"]
    assert not (bench.stack.root / RESULT).exists()
    assert "2 cells are measured already" in bench.run()
    assert bench.log == ["a", "b", "c", "c", "d"]
    assert list(bench.result(RESULT)["cells"]) == ["a", "b", "c", "d"]


def test_the_same_run_again_measures_nothing_and_fresh_everything(bench: Bench) -> None:
    bench.run()
    before = bench.result(RESULT)
    bench.run()
    assert bench.log == list("abcd")
    assert bench.result(RESULT)["cells"] == before["cells"]
    bench.run("--fresh")
    assert bench.log == list("abcdabcd")


@pytest.mark.parametrize("change", ["settings", "series", "variables"])
def test_cells_of_another_kind_are_not_kept(bench: Bench, change: str) -> None:
    bench.run()
    if change == "settings":
        bench.run("--size", "2")
    elif change == "variables":
        bench.run(VLLM_QUANT_KV_TILE="16")
    else:
        bench.stack.write({"vllm/other.py": "PLAN = 'better'\n"})
        bench.stack.commit("[Core] Plan better still")
        bench.stack.run("scripts.series", "export")
        bench.commit()
        bench.run()
    assert bench.log == list("abcdabcd")


def test_files_that_change_under_a_run_end_it(bench: Bench) -> None:
    output = bench.run(code=1, EDIT="c")
    assert "were written while the run went on" in output and "run the same command again" in output
    assert not (bench.stack.root / RESULT).exists()
    bench.run()
    assert bench.log == list("abc") + list("cd"), "the cell of that moment is measured again"


def test_smoke_and_out_stand_apart_from_results(bench: Bench) -> None:
    bench.run("--smoke")
    assert bench.result(".work/smoke/cpu/counting/result.json")["smoke"] is True
    bench.run("--out", str(bench.scratch / "mine.json"))
    assert (bench.scratch / "mine.json").exists()
    assert not (bench.stack.root / "results").exists()


# -------------------------------- refusals --------------------------------


@pytest.mark.parametrize(
    ("spoil", "reason", "remedy"),
    [
        ("edit", "vllm/other.py", "commit them and make export"),
        ("untracked", "vllm/new.py", "commit them and make export"),
        ("commit", "1 commits that patches/ has not", "make export"),
        ("reset", "vllm/ lacks patches", "make apply"),
        ("patch", "patches/ has uncommitted changes", "git commit patches"),
        ("no git", "no commit here", "take a git clone"),
    ],
)
def test_another_tree_than_the_committed_series_is_refused(
    bench: Bench, spoil: str, reason: str, remedy: str
) -> None:
    stack = bench.stack
    match spoil:
        case "edit":
            stack.write({"vllm/other.py": "PLAN = 'mine'\n"})
        case "untracked":
            stack.write({"vllm/new.py": ""})
        case "commit":
            stack.write({"vllm/other.py": "PLAN = 'mine'\n"})
            stack.commit("[Core] Mine")
        case "reset":
            stack.git("reset", "--quiet", "--hard", "HEAD^")
        case "patch":
            with (stack.patches / "series").open("a") as file:
                file.write("# a word\n")
        case "no git":
            (stack.root / ".git").rename(stack.root / "gone")
    output = bench.run(code=1)
    assert reason in output and remedy in output and "--allow-dirty" in output
    assert bench.log == []

    bench.run("--allow-dirty")
    dirty = bench.result("results/cpu/counting/result-dirty.json")["dirty"]
    assert len(dirty) == 1 and reason in " ".join(dirty[0].split())
    assert not (stack.root / RESULT).exists()


def test_an_old_kernel_is_measured_only_where_it_is_asked_for(bench: Bench) -> None:
    bench.stack.run("scripts.ab", "old", "int8_decode")
    assert "make ab-new" in bench.run(code=1)
    bench.run(VARIANTS="1")
    found = bench.result(RESULT)
    assert found["series"]["variant"] == "old int8_decode" and found["dirty"] == []
    bench.stack.write({"vllm/unrelated.py": "MINE = 1\n"})
    assert "vllm/unrelated.py" in bench.run(code=1, VARIANTS="1")


def test_another_process_on_the_gpu_is_refused(bench: Bench) -> None:
    bench.gpus(GPU | {"pids": [1]})
    output = bench.run(code=1, GPUS="1")
    assert "another process is on NVIDIA H200" in output and "CUDA_VISIBLE_DEVICES" in output
    assert bench.log == []


def test_a_busy_gpu_is_refused_and_a_nearly_idle_one_is_not(bench: Bench) -> None:
    bench.gpus(GPU | {"busy": [0, 6]})
    output = bench.run(code=1, GPUS="1")
    assert "6 % busy" in output and "nvidia-smi" in output
    bench.gpus(GPU | {"busy": [97, 40, 6, 0]})
    assert "measured already" not in bench.run("--fresh", GPUS="1")
    bench.gpus(GPU | {"busy": [5]})
    bench.run(GPUS="1")


def test_a_second_run_on_the_same_gpu_is_refused_until_the_first_ends(bench: Bench) -> None:
    other = GPU | {"uuid": "GPU-bbbb"}
    bench.gpus(GPU, other)
    first = bench.start(GPUS="1", WAIT="a")
    assert first.stdout is not None
    while "waiting" not in first.stdout.readline():
        pass
    output = bench.run(code=1, GPUS="1")
    assert "another run of these scripts measures on GPU-aaaa" in output and "wait for it" in output
    bench.run(GPUS="1", CUDA_VISIBLE_DEVICES="GPU-bbbb")
    first.send_signal(signal.SIGKILL)
    first.wait()
    bench.run(GPUS="1")


def test_only_runs_without_times_share_a_gpu(bench: Bench) -> None:
    bench.gpus(GPU | {"busy": [90], "pids": [1]})
    first = bench.start(GPUS="1", WAIT="a", UNTIMED="1")
    assert first.stdout is not None
    while "waiting" not in first.stdout.readline():
        pass
    bench.run(GPUS="1", UNTIMED="1")
    assert bench.result(ON_GPU)["environment"]["alone"] is False
    assert "another run of these scripts" in bench.run(code=1, GPUS="1")
    first.send_signal(signal.SIGKILL)
    first.wait()
    bench.gpus(GPU)
    bench.run("--fresh", GPUS="1")
    assert bench.result(ON_GPU)["environment"]["alone"] is True


def test_without_a_gpu_only_a_smoke_run_starts(bench: Bench) -> None:
    output = bench.run(code=1, GPUS="1")
    assert "needs an NVIDIA GPU" in output and "--smoke" in output
    bench.gpus(GPU)
    for hidden in ({"CUDA_VISIBLE_DEVICES": ""}, {"DEVICE": "cpu"}):
        assert "needs an NVIDIA GPU" in bench.run(code=1, GPUS="1", **hidden)
    assert "needs 2 GPUs and sees 1" in bench.run(code=1, GPUS="2")


def test_an_input_that_is_not_the_pinned_one_is_refused(bench: Bench) -> None:
    wrong = bench.scratch / "model.gguf"
    wrong.write_text("other weights")
    output = bench.run(code=1, FILE=str(wrong))
    assert "is not the input smollm2-135m-instruct that was pinned" in output
    assert "python -m scripts.model" in output
    assert "is not at" in bench.run(code=1, FILE=str(Path("nowhere.gguf")))
    assert bench.log == []


def test_an_input_that_a_user_named_is_recorded_whatever_it_is(bench: Bench) -> None:
    mine = bench.scratch / "mine"
    mine.mkdir()
    (mine / "weights").write_text("some")
    bench.run(NAMED=str(mine))
    before = bench.result(RESULT)["inputs"]["mine"]
    assert before["pinned"] is False and len(before["sha256"]) == 64
    (mine / "weights").write_text("others")
    bench.run(NAMED=str(mine))
    assert bench.result(RESULT)["inputs"]["mine"]["sha256"] != before["sha256"]
    assert bench.log == list("abcdabcd"), "cells of other weights are not kept"


def test_an_input_that_changes_under_a_run_ends_it(bench: Bench) -> None:
    mine = bench.scratch / "mine.json"
    mine.write_text("{}")
    output = bench.run(code=1, NAMED=str(mine), SPOIL=str(mine))
    assert "was written while the run went on" in output
    assert not (bench.stack.root / RESULT).exists()


def test_a_folders_digest_is_of_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    found = inputs.digest(tmp_path)
    (tmp_path / ".hidden").write_text("2")
    (tmp_path / "below").mkdir()
    assert inputs.digest(tmp_path) == found
    (tmp_path / "a").rename(tmp_path / "b")
    assert inputs.digest(tmp_path) != found
