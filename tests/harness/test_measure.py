"""`make measure`: what it runs, leaves out, loses and passes on; the patches' own benchmarks."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest
from harness_lab import GPU, Bench

from scripts.common import ROOT
from scripts.measure import kernels
from scripts.measure.__main__ import lines

ONE = "counting_bench --out results/cpu/one.json"
TWO = "counting_bench --size 2 --out results/cpu/two.json"
BROKEN = "counting_bench --nonsense"
# A benchmark of a patch, its times in us.
STUB = """
import json, sys
step = {"fa3_bf16_us": 40.0, "unified_us": 200.0, "fused": {"table": {"median_us": 30.0}}}
with open(sys.argv[-1], "w") as file:
    json.dump({"format": "int8", "cases": {"a": step}, "seen": sys.argv[1:-1]}, file)
"""


def measure(bench: Bench, *flags: str, runs: tuple[str, ...] = (ONE, TWO), code: int = 0) -> str:
    """`python -m scripts.measure FLAGS` over these runs; all output in one line."""
    file = bench.scratch / "runs.toml"
    file.write_text(f"runs = {json.dumps(runs)}\n")
    return bench.run("--runs", str(file), *flags, module="scripts.measure", code=code)


def test_what_has_a_result_is_left_out(bench: Bench) -> None:
    said = measure(bench)
    assert f"[1/2] {ONE}" in said and f"[2/2] {TWO}" in said
    assert bench.log == list("abcd") * 2
    said = measure(bench)
    assert said.count("has its result") == 2 and bench.log == list("abcd") * 2
    assert bench.result("results/cpu/two.json")["settings"]["size"] == 2


def test_again_measures_anew_and_counts_as_the_same_run(bench: Bench) -> None:
    measure(bench, runs=(ONE,))
    assert "has its result" not in measure(bench, "--again", runs=(ONE,))
    assert bench.log == list("abcd") * 2
    assert "has its result" in measure(bench, runs=(ONE,))


def test_another_series_is_measured_anew(bench: Bench) -> None:
    measure(bench, runs=(ONE,))
    bench.stack.write({"vllm/other.py": "PLAN = 'better'\n"})
    bench.stack.commit("[Core] Plan better still")
    bench.stack.run("scripts.series", "export")
    bench.commit()
    assert "has its result" not in measure(bench, runs=(ONE,))
    assert bench.log == list("abcd") * 2


def test_a_result_of_another_gpu_is_none_of_this_one(bench: Bench) -> None:
    (bench.stack.root / "results" / "h200").mkdir(parents=True)
    bench.gpus(GPU)
    line = "counting_bench --out results/h200/x.json"
    measure(bench, runs=(line,))
    assert "has its result" in measure(bench, runs=(line,))
    bench.gpus(GPU | {"name": "NVIDIA B200"})
    assert "has its result" not in measure(bench, runs=(line,))


def test_a_run_that_fails_loses_no_other_and_is_told_at_the_end(bench: Bench) -> None:
    said = measure(bench, runs=(ONE, BROKEN, TWO), code=1)
    assert bench.log == list("abcd") * 2
    end = said[said.index("1 of 3 runs failed") :]
    assert f"python -m {BROKEN} (exit 2)" in end and "run the same command again" in end
    assert measure(bench, runs=(ONE, BROKEN, TWO), code=1).count("has its result") == 2


def test_smoke_is_passed_on_and_leaves_nothing_out(bench: Bench) -> None:
    line = "counting_bench"
    measure(bench, "--smoke", runs=(line,))
    assert bench.result(".work/smoke/cpu/counting/result.json")["smoke"] is True
    assert "has its result" not in measure(bench, "--smoke", runs=(line,))


def test_an_interrupt_ends_all_of_it(bench: Bench) -> None:
    file = bench.scratch / "runs.toml"
    file.write_text(f"runs = {json.dumps([ONE, TWO])}\n")
    process = bench.start("--runs", str(file), module="scripts.measure", WAIT="b")
    assert process.stdout is not None
    while "waiting" not in process.stdout.readline():
        pass
    # As Ctrl-C reaches it: the scripts' processes are of its group.
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True)
    for pid in map(int, children.stdout.split()):
        subprocess.run(["kill", "-INT", str(pid)], check=True)
    assert process.wait(timeout=30) == 130
    assert bench.log == ["a", "b"]


def test_a_dirty_tree_is_refused_before_anything_runs(bench: Bench) -> None:
    bench.stack.write({"vllm/other.py": "PLAN = 'mine'\n"})
    assert "vllm/other.py" in measure(bench, code=1)
    assert bench.log == []


# ---------------------------- the list itself -----------------------------


def test_every_line_is_a_script_that_takes_its_flags() -> None:
    """By the script's own parser, which knows all of them before it looks at --help."""
    listed = lines()
    assert len(set(listed)) == len(listed)
    code = (
        "import importlib, json, sys\n"
        "for line in json.load(sys.stdin):\n"
        "    sys.argv = line\n"
        "    importlib.import_module(line[0]).arguments()\n"
    )
    words = [shlex.split(line) for line in listed if "release_suites" not in line]
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(words),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_list_covers_what_the_report_expects() -> None:
    from scripts.report.page import BENCHMARKED, EXPECTED

    scripts = {line.split()[0].removeprefix("scripts.") for line in lines()}
    assert set(EXPECTED) <= scripts
    names = {line.split()[1] for line in lines() if "measure.kernels" in line}
    assert set(BENCHMARKED) <= names == set(kernels.BENCHMARKS)


def test_the_list_covers_the_files_of_the_readme() -> None:
    """Each engine result that README cites is that of a line, by model, length and drafts."""
    readme = (ROOT / "README.md").read_text()
    flags = [dict(zip(words, words[1:], strict=False)) for words in map(shlex.split, lines())]
    cited = [
        path
        for path in (ROOT / "results").glob("*/*_serving/*.json")
        if path.relative_to(ROOT).as_posix() in readme
    ]
    assert cited
    for path in cited:
        settings = json.loads(path.read_text())["settings"]
        same = [
            one
            for one in flags
            if one.get("--model") == settings["model"]
            and int(one.get("--context", 0)) == settings["context"]
            and int(one.get("--arriving", 0)) == settings.get("arriving", 0)
            and int(one.get("--drafts", 0)) == settings["drafts"]
        ]
        assert same, path.name


# --------------------- the benchmarks that patches bring --------------------


def with_benchmark(bench: Bench, text: str) -> None:
    path = "benchmarks/kernels/benchmark_quant_kv_attention.py"
    bench.stack.write({path: text})
    bench.stack.commit("[Bench] Time a step")
    bench.stack.run("scripts.series", "export")
    bench.commit()


def test_a_patchs_benchmark_leaves_a_result_like_the_others(bench: Bench) -> None:
    with_benchmark(bench, STUB)
    bench.gpus(GPU)
    bench.run("decode-int8", module="scripts.measure.kernels")
    found = bench.result("results/h200/decode-int8.json")
    assert found["command"] == "python -m scripts.measure.kernels decode-int8"
    assert found["series"]["stack"] == bench.stack.head() and found["dirty"] == []
    assert found["environment"]["gpus"][0]["uuid"] == "GPU-aaaa"
    ratios = found["cases"]["a"]["ratio_to_fa3_bf16"]
    assert ratios == {"fused": 0.75, "unified_int8": 5.0}
    assert found["seen"] == ["--json"]
    bench.run("query-terms-int8", "--smoke", module="scripts.measure.kernels")
    smoke = bench.result(".work/smoke/h200/query-terms-int8.json")
    assert smoke["seen"][:4] == ["--no-unified", "--query-terms", "2", "1"]
    assert smoke["seen"][4:] == ["--cases", "decode-b1-4k-d128", "--json"]


def test_a_benchmark_that_fails_leaves_none(bench: Bench) -> None:
    with_benchmark(bench, "raise SystemExit(3)\n")
    bench.gpus(GPU)
    assert "ended with 3" in bench.run("decode-int8", module="scripts.measure.kernels", code=1)
    assert not (bench.stack.root / "results").exists()


def test_without_a_gpu_a_benchmark_is_refused_and_its_smoke_run_says_why(bench: Bench) -> None:
    module = "scripts.measure.kernels"
    assert "needs an NVIDIA GPU" in bench.run("prefill", module=module, code=1)
    assert "nothing to check" in bench.run("prefill", "--smoke", module=module)


RECORDED = ("decode-int8", "decode-int4", "decode-int4_kivi", "query-terms-int8")


@pytest.mark.parametrize("name", RECORDED)
def test_ratios_are_those_that_the_results_hold(name: str) -> None:
    data = json.loads((ROOT / "results" / "h200" / f"{name}.json").read_text())
    for case in data["cases"].values():
        assert kernels.ratios(case, data["format"]) == case["ratio_to_fa3_bf16"]
