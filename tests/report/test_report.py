"""The renderer: on recorded results, on the repository's own, and what it refuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from recorded import all_of_them, kernel_cells, result

from scripts.attention import bench
from scripts.common import ROOT, Failure
from scripts.report import __main__ as command
from scripts.report import kernel_benchmark, load, page, plots, readme
from scripts.report.load import Result


def git(*words: str, cwd: Path) -> str:
    identity = ["-c", "user.name=Some Body", "-c", "user.email=some.body@example.com"]
    return subprocess.run(
        ["git", *identity, *words], cwd=cwd, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with every kind of result, all traceable, and a README that cites one."""
    made = tmp_path / "repository"
    made.mkdir()
    git("init", "--quiet", cwd=made)
    git("commit", "--quiet", "--allow-empty", "--message=one", cwd=made)
    commit = git("rev-parse", "HEAD", cwd=made)
    git("commit", "--quiet", "--allow-empty", "--message=two", cwd=made)
    for name, data in all_of_them(commit).items():
        put(made, name, data)
    (made / "README.md").write_text("# Head\n\n<!-- patches -->\nold\n<!-- /patches -->\n\nTail\n")
    (made / "readme.toml").write_text(
        "[[patch]]\nnumber = '0001'\nname = 'plan'\ngives = 'room'\n"
        "figures = '12 GiB, BF16, 128K: {tokens:,} tokens, {ratio:.2f} "
        "([run](results/cpu/capacity/1GiB.json))'\n[patch.values]\n"
        "tokens = ['cpu/capacity/1GiB.json', 'cells', 'm/int8', 'plans', 'after', 'tokens']\n"
        "ratio = ['h200/quality_teacher_forced/result.json', 'cells', 'int8', 'buckets', '1', "
        "'delta_nll']\n"
    )
    results = made / "results"
    for module in (load, readme):
        monkeypatch.setattr(module, "ROOT", made)
    for module in (load, page, command):
        monkeypatch.setattr(module, "RESULTS", results)
    monkeypatch.setattr(readme, "README", made / "README.md")
    load.why_no_ancestor.cache_clear()
    return made


def put(root: Path, name: str, data: Any) -> None:
    path = root / "results" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def figures(root: Path, text: str | None = None) -> dict[str, str]:
    """What the README's template renders to, with another text of figures."""
    file = root / "readme.toml"
    if text is not None:
        lines = file.read_text().splitlines()
        lines[4] = f"figures = '{text}'"
        file.write_text("\n".join(lines))
    return readme.render(load.load(root / "results"), file)


def make(root: Path) -> page.Page:
    made = page.Page(load.load(root / "results"), root / "results")
    (root / "results" / "REPORT.md").write_text(made.render())
    return made


# -------------------------------- the page --------------------------------


def test_the_page_tells_card_clocks_versions_and_commit(root: Path) -> None:
    text = make(root).render()
    (line,) = [line for line in text.splitlines() if "mixed_serving/result.json)" in line][:1]
    commit = git("rev-parse", "HEAD^", cwd=root)[:12]
    for word in ("NVIDIA H200, driver 580.1", "locked, SM 1395–1410 MHz", "power limit", commit):
        assert word in line
    assert "vllm 0.31.0, torch 2.13.0, triton 3.7.1" in line


def test_tables_hold_the_recorded_figures(root: Path) -> None:
    text = make(root).render()
    cells = kernel_cells()
    slow, fast = (cells[f"qwen3.6-27b/q1s32k/{form}"]["read"] for form in ("fa-bf16", "int8"))
    row = next(line for line in text.splitlines() if "q1s32k" in line and "series, INT8" in line)
    assert f"{fast['p50']:,.1f} ({fast['p20']:,.1f}–{fast['p80']:,.1f})" in row
    assert f"{fast['p50'] / slow['p50']:.3f}" in row and f"{fast['tb_per_s']:.2f}" in row
    assert "Copy bandwidth of the card: 4.00 TB/s.\n" in text
    assert "+25.0 %" in text and "1,250" in text
    assert "- FlashAttention, FP8: no FP8 here" in text
    entry = next(line for line in text.splitlines() if "16,1,12,1" in line)
    assert "sm90, int8, 256, 8, few" in entry and "0.650" in entry
    assert "0.625" in text and "truncated.a" in text
    assert "0 new failures. Of 1 of 2 files a limit cut" in text
    assert "| tests/a.py | 7 passed" in text.replace("  ", "") and "tests/b.py" not in text
    ratios = text[text.index("Over auto:") :]
    assert "alone_ms_p50" in ratios and "0.889" in ratios


def test_bandwidths_are_beside_the_most_that_a_run_copied(root: Path) -> None:
    """A slower copy of one run would put others over 100 %."""
    (path,) = (root / "results").rglob("bench_quant_vs_flash/result.json")
    data = json.loads(path.read_text())
    data["cells"]["copy"]["bytes_per_s"] = 2e12
    put(root, "h200/bench_quant_vs_flash/slow.json", data)
    text = make(root).render()
    assert "4.00 TB/s.\n" in text
    assert "4.00 TB/s, the most that a run on it measured (this one: 2.00)" in text
    fast = kernel_cells()["qwen3.6-27b/q1s32k/int8"]["read"]["tb_per_s"]
    rows = [line for line in text.splitlines() if "q1s32k" in line and "series, INT8" in line]
    assert len(rows) > 1 and all(f"{fast / 4:.0%}" in row for row in rows)


def test_every_plot_is_drawn_and_the_same_bytes_again(root: Path) -> None:
    first = make(root)
    names = {path.name for path in first.plots}
    assert names == {
        "h200-bench_quant_vs_flash-result-decode-qwen3.6-27b.svg",
        "h200-bench_quant_vs_flash-result-verify-qwen3.6-27b.svg",
        "cpu-capacity-1GiB.svg",
        "h200-mixed_serving-result.svg",
        "h200-quality_teacher_forced-result.svg",
    }
    before = {path: path.read_bytes() for path in first.plots}
    text = first.render()
    for path in first.plots:
        assert f"](plots/{path.name})" in text
    make(root)
    assert {path: path.read_bytes() for path in first.plots} == before


@pytest.mark.parametrize(("copy", "lines"), [(4e12, 4), (None, 2)])
def test_the_byte_floor_is_drawn_where_a_bandwidth_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: float | None, lines: int
) -> None:
    drawn: list[Any] = []
    real = plots.pyplot.subplots

    def subplots(*arguments: Any, **options: Any) -> Any:
        made = real(*arguments, **options)
        drawn.append(made[1])
        return made

    monkeypatch.setattr(plots.pyplot, "subplots", subplots)
    assert plots.kernel_time(tmp_path / "x.svg", kernel_cells(), "qwen3.6-27b", "decode", copy)
    assert len(drawn[0].lines) == lines
    if copy:
        time, floor = drawn[0].lines[:2]
        assert list(floor.get_ydata() / time.get_ydata()) == pytest.approx([1 / 1.5] * 2)
    assert not plots.kernel_time(tmp_path / "y.svg", kernel_cells(), "gpt-oss", "decode", copy)
    assert not (tmp_path / "y.svg").exists()


def test_what_was_not_measured_is_named_as_missing(root: Path) -> None:
    (root / "results/h200/mixed_serving/result.json").unlink()
    put(root, "h200/quality_teacher_forced/result.json", quality_without_buckets(root))
    made = make(root)
    missing = made.render().partition("## Missing")[2]
    assert "mixed_serving: step times while a prompt arrives" in missing
    assert "plot h200-quality_teacher_forced-result.svg: no cells for it" in missing
    assert "longctx_code_serving" in missing and "capacity:" not in missing


def quality_without_buckets(root: Path) -> dict[str, Any]:
    commit = git("rev-parse", "HEAD", cwd=root)
    return result("quality_teacher_forced", {"int8": {"top1": 0.99}}, commit)


# -------------------------------- refusals --------------------------------


def test_a_result_that_no_ancestor_stands_behind_is_refused(root: Path) -> None:
    git("checkout", "--quiet", "-b", "aside", "HEAD^", cwd=root)
    git("commit", "--quiet", "--allow-empty", "--message=aside", cwd=root)
    aside = git("rev-parse", "HEAD", cwd=root)
    git("checkout", "--quiet", "-", cwd=root)
    refused = {
        "x/list.json": ([1], "says nothing of the series"),
        "x/smoke.json": (result("x", {}, "0" * 40, smoke=True), "a smoke run's"),
        "x/dirty.json": (result("x", {}, aside, dirty=["edits"]), "--allow-dirty"),
        "x/none.json": (result("x", {}, ""), "names no commit"),
        "x/aside.json": (result("x", {}, aside), "is not an ancestor of HEAD"),
        "x/unknown.json": (result("x", {}, "0" * 40), "is not in this repository"),
    }
    for name, (data, _) in refused.items():
        put(root, name, data)
    with pytest.raises(Failure, match="measure them again") as failure:
        load.load(root / "results")
    lines = str(failure.value).splitlines()
    for name, (_, reason) in refused.items():
        assert any(name in line and reason in line for line in lines), name
    assert len(lines) == len(refused) + 2, "the sound results are not named"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,250 tokens", "1,250 has no JSON"),
        ("{tokens:,} tokens, {ratio:.2f} of 0.71", "0.71 has no JSON"),
        ("+21.5 % at 12 GiB", "21.5 has no JSON"),
        ("{other} tokens", "no usable value for 'other'"),
        ("{tokens:s}", "no usable value"),
    ],
)
def test_a_figure_without_json_behind_it_is_refused(root: Path, text: str, said: str) -> None:
    with pytest.raises(Failure) as failure:
        figures(root, text)
    assert said in str(failure.value) and "0001 plan" in str(failure.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("cpu/capacity/1GiB.json", "cpu/capacity/2GiB.json"), "2GiB.json is missing"),
        (("m/int8", "m/int2"), "has no cells/m/int2"),
        (("'tokens']", "'notes']"), "at notes"),
        ((", 'after', 'tokens']", "]"), "is no number"),
    ],
)
def test_a_value_that_is_not_there_is_refused(
    root: Path, change: tuple[str, str], said: str
) -> None:
    file = root / "readme.toml"
    head, values = file.read_text().split("[patch.values]")
    assert change[0] in values
    file.write_text(f"{head}[patch.values]{values.replace(*change, 1)}")
    with pytest.raises(Failure) as failure:
        figures(root)
    assert said in str(failure.value)


def test_the_readme_gets_its_figures_between_the_markers(root: Path) -> None:
    texts = figures(root)
    new = readme.put((root / "README.md").read_text(), texts)
    assert new.startswith("# Head\n") and new.endswith("Tail\n") and "old" not in new
    assert "12 GiB, BF16, 128K: 1,250 tokens, 0.00 ([run](results/cpu/capacity/1GiB.json))" in new
    assert readme.put(new, texts) == new
    readme.require_links(texts["patches"])
    (root / "results/cpu/capacity/1GiB.json").rename(root / "results/gone.json")
    with pytest.raises(Failure, match="1GiB.json"):
        readme.require_links(texts["patches"])
    with pytest.raises(Failure, match="no markers"):
        readme.put("# Head\n", texts)


# ----------------------------- our own results -----------------------------


def test_our_readmes_figures_are_those_of_our_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["report", "--check"])
    command.run()


def test_our_results_render(tmp_path: Path) -> None:
    results = load.load()
    made = page.Page(results, tmp_path)
    text = made.render()
    for one in results:
        assert f"]({one.shown})" in text
    assert made.plots and all(path.exists() for path in made.plots)


def test_the_first_kernel_results_read_as_the_harness_writes_them() -> None:
    data = json.loads((ROOT / "results/h200/decode-int8.json").read_text())
    cells = kernel_benchmark.cells(data)
    assert page.copied(cells) == data["copy_tb_s"] * 1e12
    cells = {name: cell for name, cell in cells.items() if name != bench.COPY}
    assert {cell["batch"] for cell in cells.values()} >= {"q1s128k", "q6s32k", "8q1s12k"}
    assert len({cell["batch"] + cell["geometry"] for cell in cells.values()}) == len(data["cases"])
    one = Result(ROOT / "results/h200/decode-int8.json", data)
    rows = list(page.kernel_rows(cells, "read", "fa-bf16", None))
    ratios = {(row[0], row[1]): float(row[5]) for row in rows}
    recorded = data["cases"]["decode-b1-32k-d256"]["ratio_to_fa3_bf16"]
    assert ratios["qwen3.6-27b q1s32k", "series, INT8"] == recorded["fused"]
    assert ratios["qwen3.6-27b q1s32k", "FlashAttention, FP8"] == recorded["fa3_fp8"]
    assert one.place == "h200" and "H200" in page.card(one)
