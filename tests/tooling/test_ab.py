"""The swap of a kernel's files, its states from content, and the alternate bench."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ab_fixtures import MANY, Stack, kernel, make

INT8_FILES = MANY + 4
# Runs `old int8_decode` and kills itself with SIGKILL at the argument's number of writes; before
# the write, or between it and what follows.
KILLED = """
import os, signal, sys
from scripts.ab import swap
write, left = swap.write, int(sys.argv.pop(1))
def dying(path, blob):
    global left
    left -= 1
    if left == 0 and BEFORE:
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, blob)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
swap.write = dying
sys.argv = ["ab", "old", "int8_decode"]
import scripts.ab.__main__
"""
BENCH = """
import json, os, pathlib, sys, time
sys.path.insert(0, "vllm")
from vllm import attn
fused = attn.KERNEL == "fused"
with open("runs.jsonl", "a") as log:
    keys = ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    about = {"kernel": attn.KERNEL, "argv": sys.argv[1:-2]}
    log.write(json.dumps(about | {k: os.environ[k] for k in keys}) + "\\n")
for _ in range(int(os.environ.get("BENCH_BEATS", 0))):
    pathlib.Path("beat").touch()
    time.sleep(0.05)
if os.environ.get("BENCH_FAIL"):
    sys.exit("the reason why it failed")
cases = {"B1 4K": {"median_us": 50.0 if fused else 100.0}}
if os.environ.get("BENCH_APART"):
    cases = {attn.KERNEL: {"median_us": 1.0}}
if fused:
    cases["B1 32K"] = {"median_us": 7.0}
text = os.environ.get("BENCH_SAYS") or json.dumps({"cases": cases, "triton": "3.6"})
pathlib.Path(sys.argv[sys.argv.index("--json") + 1]).write_text(text)
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    return make(tmp_path_factory.mktemp("original"))


@pytest.fixture
def stack(original: Stack, tmp_path: Path) -> Stack:
    return original.copy(tmp_path)


@pytest.fixture
def benched(stack: Stack) -> Stack:
    scripts = stack.root / "scripts"
    scripts.mkdir()
    (scripts / "__init__.py").write_text("")
    (scripts / "bench_fake.py").write_text(BENCH)
    return stack


def ab(stack: Stack, *args: str, code: int = 0, **env: str) -> str:
    return stack.run("scripts.ab", *args, code=code, **env)


def files(stack: Stack) -> dict[str, bytes]:
    """Every file of vllm/ but the bytecode."""
    return {name: data for name, data in stack.contents().items() if "__pycache__" not in name}


def assert_new(stack: Stack) -> None:
    assert files(stack) == stack.tree("HEAD")
    assert stack.git("status", "--porcelain") == ""
    assert ab(stack, "status").startswith("new")


def old_tree(stack: Stack) -> dict[str, bytes]:
    """The old int8_decode: the package before it, with what the last patch adds; tests stay."""
    return {
        **stack.tree("HEAD~4", "vllm"),
        **stack.tree("HEAD", ".gitignore", "vllm/unrelated.py", "tests"),
    }


def test_old_takes_off_the_patch_and_what_hangs_on_it(stack: Stack) -> None:
    out = ab(stack, "old", "int8_decode")
    assert files(stack) == old_tree(stack)
    assert not (stack.vllm / "vllm/quant").exists(), "would import as a namespace package"
    assert "INT8 decode" in out and "INT4 decode" in out and "Prefill" in out
    assert "Unrelated" not in out and "Plan better" not in out
    assert "old int8_decode" in ab(stack, "status")
    assert "nothing to do" in ab(stack, "old", "int8_decode")
    assert f"{INT8_FILES + 3} files restored" in ab(stack, "new")
    assert_new(stack)
    assert "nothing to do" in ab(stack, "new")


def test_old_of_a_later_patch_keeps_the_earlier_ones(stack: Stack) -> None:
    ab(stack, "old", "prefill")
    now = files(stack)
    assert now["vllm/attn.py"] == b"KERNEL = 'fused'\nPREFILL = 'stock'\n"
    assert "vllm/old_prefill.py" in now and "vllm/prefill.py" not in now
    assert "vllm/quant/decode.py" in now and "vllm/int4.py" in now


def test_old_of_another_kernel_restores_the_first(stack: Stack) -> None:
    ab(stack, "old", "int8_decode")
    ab(stack, "old", "int4_decode")
    wanted = stack.tree("HEAD")
    del wanted["vllm/int4.py"]
    assert files(stack) == wanted
    assert ab(stack, "status").startswith("old int4_decode:")


def test_a_module_named_by_a_string_or_a_relative_import_is_needed(stack: Stack) -> None:
    stack.write({"vllm/registry.py": "X = 'vllm.int4.Loader'\n"})
    stack.commit("Registry")
    stack.write({"vllm/quant/user.py": "def f():\n    from ..int4 import g\n"})
    stack.commit("Relative")
    out = ab(stack, "old", "int4_decode")
    assert "Registry" in out and "Relative" in out and "Unrelated" not in out
    assert not (stack.vllm / "vllm/quant/user.py").exists()


def test_file_modes_survive(stack: Stack) -> None:
    stack.write({"vllm/run.sh": "new\n"})
    (stack.vllm / "vllm/run.sh").chmod(0o755)
    stack.commit("Script", kernel("script"))
    ab(stack, "old", "script")
    ab(stack, "new")
    assert_new(stack)


def test_unknown_kernels_are_refused_with_those_known(stack: Stack) -> None:
    assert "int4_decode, int8_decode, prefill" in ab(stack, "old", "nonsense", code=1)
    assert "KERNEL=" in ab(stack, "old", code=1)
    stack.write({"vllm/x.py": ""})
    stack.commit("Twice", kernel("prefill"))
    assert "two patches" in ab(stack, "status", code=1)


def test_a_patch_without_package_files_names_no_kernel(stack: Stack) -> None:
    stack.write({"docs/x.md": ""})
    stack.commit("Docs", kernel("docs"))
    assert "drop its Kernel trailer" in ab(stack, "old", "docs", code=1)


def test_an_unfinished_git_operation_is_refused(stack: Stack) -> None:
    (stack.vllm / ".git/MERGE_HEAD").write_text(stack.git("rev-parse", "HEAD~1"))
    assert "MERGE_HEAD" in ab(stack, "old", "prefill", code=1)


@pytest.mark.parametrize("name", ["vllm/attn.py", "vllm/quant/tile_3.py"])
def test_modifications_are_refused_and_kept(stack: Stack, name: str) -> None:
    stack.write({name: "MINE = 1\n"})
    before = files(stack)
    assert name in ab(stack, "old", "int8_decode", code=1)
    assert files(stack) == before
    out = ab(stack, "status", code=1)
    assert name in out


def test_modifications_of_old_files_are_refused_and_kept(stack: Stack) -> None:
    ab(stack, "old", "int8_decode")
    stack.write({"vllm/attn.py": "MINE = 1\n", "vllm/quant/decode.py": "MINE = 2\n"})
    before = files(stack)
    error = ab(stack, "new", code=1)
    assert "vllm/attn.py" in error and "vllm/quant/decode.py" in error
    assert files(stack) == before


def test_other_modifications_do_not_matter_and_are_kept(stack: Stack) -> None:
    mine = {"tests/test_attn.py": "MINE = 1\n", "vllm/mine.py": "MINE = 2\n"}
    stack.write(mine)
    ab(stack, "old", "int8_decode")
    ab(stack, "new")
    now = files(stack)
    assert {name: now[name].decode() for name in mine} == mine


def test_bytecode_of_swapped_modules_goes(stack: Stack) -> None:
    package = stack.vllm / "vllm"
    subprocess.run([sys.executable, "-m", "compileall", "-q", package], check=True)
    kept = list((package / "__pycache__").glob("unrelated.*"))
    assert kept and list((package / "__pycache__").glob("attn.*"))
    ab(stack, "old", "int8_decode")
    assert not list((package / "__pycache__").glob("attn.*"))
    assert kept[0].exists()
    subprocess.run([sys.executable, "-m", "compileall", "-q", package], check=True)
    ab(stack, "new")
    assert not list((package / "__pycache__").glob("attn.*"))


@pytest.mark.parametrize(
    ("at", "before"), [(1, True), (1, False), (MANY // 2, True), (INT8_FILES + 3, False)]
)
def test_killed_at_a_write(stack: Stack, at: int, before: bool) -> None:
    script = KILLED.replace("BEFORE", str(before))
    process = stack.start("-c", script, str(at))
    assert process.wait(30) == -signal.SIGKILL
    ab(stack, "new")
    assert_new(stack)


def test_half_swapped_is_seen_and_completed(stack: Stack) -> None:
    process = stack.start("-c", KILLED.replace("BEFORE", "False"), "5")
    process.wait(30)
    out = ab(stack, "status", code=1)
    assert "half swapped" in out and "vllm/attn.py" in out
    ab(stack, "old", "int8_decode")
    assert files(stack) == old_tree(stack)


def test_killed_at_random_moments(stack: Stack) -> None:
    start = time.monotonic()
    ab(stack, "old", "int8_decode")
    whole = time.monotonic() - start
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    for _ in range(6):
        ab(stack, "new")
        process = stack.start("-m", "scripts.ab", "old", "int8_decode")
        time.sleep(chance.uniform(0.3, 1.0) * whole)
        process.kill()
        process.wait()
        # The user goes on with either command, from whatever state.
        command = chance.choice([("new",), ("old", "int8_decode"), ("old", "prefill")])
        ab(stack, *command)
        ab(stack, "new")
        assert files(stack) == stack.tree("HEAD"), f"seed {seed}"
    assert_new(stack)


def runs(stack: Stack) -> list[dict[str, str]]:
    return [json.loads(line) for line in (stack.root / "runs.jsonl").open()]


def test_bench_alternates_with_separate_caches_and_ends_new(benched: Stack) -> None:
    out = ab(benched, "bench", "int8_decode", "fake", "--flags=--batch q1s4k 'q1s32k'")
    done = runs(benched)
    assert all(run["argv"] == ["--batch", "q1s4k", "q1s32k"] for run in done)
    assert [run["kernel"] for run in done] == ["stock", "fused"] * 5
    for key in ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        assert len({run[key] for run in done}) == 2
        assert len({run[key] for run in done[::2]}) == 1
    assert len([line for line in out.splitlines() if line.startswith("pair ")]) == 10
    [file] = (benched.root / "results/ab").iterdir()
    result = json.loads(file.read_text())
    assert file.name == f"int8_decode-fake-{result['device'].lower().replace(' ', '-')}.json"
    assert result["cases"] == {
        "B1 4K": {
            "old_median_us": 100.0,
            "new_median_us": 50.0,
            "ratio": 0.5,
            "ratio_low": 0.5,
            "ratio_high": 0.5,
        }
    }
    assert len(result["pairs"]) == 5 and result["pairs"][0]["new"]["B1 32K"] == 7.0
    assert result["command"].endswith('BENCH=fake PAIRS=5 FLAGS="--batch q1s4k q1s32k"')
    assert result["bench_says"] == {"triton": "3.6"}
    assert result["stack"] == benched.git("rev-parse", "HEAD").strip()
    assert_new(benched)


def test_bench_refuses_few_pairs_and_unknown_names(benched: Stack) -> None:
    few = ab(benched, "bench", "int8_decode", "fake", "--pairs", "4", code=1)
    assert "at least 5" in few
    assert "known: fake" in ab(benched, "bench", "int8_decode", "none", code=1)
    assert "int8_decode" in ab(benched, "bench", "none", "fake", code=1)
    assert not (benched.root / "runs.jsonl").exists()


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"BENCH_FAIL": "1"}, "the reason why it failed"),
        ({"BENCH_APART": "1"}, "no case was measured with both"),
        ({"BENCH_SAYS": "{}"}, "cases"),
        ({"BENCH_SAYS": '{"cases": {}}'}, "no cases"),
        ({"BENCH_SAYS": '{"cases": {"a": {"median_us": 0}}}'}, "no positive time for a"),
        ({"BENCH_SAYS": '{"cases": {"a": 3}}'}, "not the form"),
        ({"BENCH_SAYS": "{"}, "no usable result"),
    ],
)
def test_a_bench_that_fails_leaves_new_in(benched: Stack, env: dict[str, str], told: str) -> None:
    assert told in ab(benched, "bench", "int8_decode", "fake", **env, code=1)
    assert_new(benched)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_bench_interrupted(
    benched: Stack, monkeypatch: pytest.MonkeyPatch, kind: signal.Signals
) -> None:
    monkeypatch.setenv("BENCH_BEATS", "400")
    process = benched.start("-m", "scripts.ab", "bench", "int8_decode", "fake")
    beat = benched.root / "beat"
    while not beat.exists() and process.poll() is None:
        time.sleep(0.02)
    assert "at work" in ab(benched, "new", code=1)
    process.send_signal(kind)
    code = process.wait(10)
    if kind == signal.SIGKILL:
        assert ab(benched, "status").startswith("old int8_decode")
        ab(benched, "new")
    else:
        assert code == 130
    assert_new(benched)
    last = beat.stat().st_mtime_ns
    time.sleep(0.3)
    assert beat.stat().st_mtime_ns == last, "the bench still runs"
