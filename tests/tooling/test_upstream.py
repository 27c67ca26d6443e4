"""check-upstream on a small release: every verdict, ports, drift, and what it leaves behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ab_fixtures import Files, Patches, Stack, make
from series_lab import REASON, make_sdist

from scripts.common import PATCHES
from scripts.series.upstream import differing

VERSION = "9.9.9"


def lines(**changed: str) -> str:
    """30 lines; line12="x" replaces the twelfth."""
    return "".join(f"{changed.get(f'line{n}', f'text {n}')}\n" for n in range(1, 31))


# The last line makes a blob that no file of the release has.
ONLY = "of the base and the release's own form"
BASE: Files = {
    **{f"vllm/{name}.py": lines() for name in "abdegh"},
    **{f"vllm/{name}.py": lines(line30=ONLY) for name in "cf"},
}
STACK: Patches = [
    ("Clean", REASON, {"vllm/a.py": lines(line10="ours"), "vllm/added.py": "new\n"}),
    ("Moved", REASON, {"vllm/b.py": lines(line10="ours", line25="ours")}),
    ("Fuzzy", REASON, {"vllm/c.py": lines(line10="ours", line30=ONLY)}),
    (
        "Conflict",
        REASON,
        {
            "vllm/d.py": lines(line2="ours", line10="ours", line20="ours"),
            "vllm/e.py": lines(line10="ours"),
        },
    ),
    ("Upstream", REASON, {"vllm/f.py": lines(line10="ours", line30=ONLY)}),
    ("Ported", REASON, {"vllm/g.py": lines(line10="ours")}),
    ("On top", REASON, {"vllm/added.py": "new\nmore\n"}),
]
RELEASE: dict[str, str] = {
    **{f"vllm/{name}.py": lines() for name in "aeh"},
    "vllm/b.py": "first\n" + lines(),
    "vllm/c.py": lines(line8="theirs", line30=ONLY),
    "vllm/d.py": lines(line10="theirs", line20="ours"),
    "vllm/f.py": "first\n" + lines(line10="ours", line30=ONLY),
    "vllm/moved_g.py": lines(),
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    stack = make(tmp_path_factory.mktemp("original"), BASE, STACK)
    folder = stack.root / "patches"
    stack.git("format-patch", "-q", "--full-index", "--root", "-o", str(folder), "HEAD")
    next(folder.glob("0001-*")).unlink()
    for file in sorted(folder.iterdir()):
        number, rest = file.name.split("-", 1)
        file.rename(folder / f"{int(number) - 1:04}-{rest}")
    write_series(stack)
    (stack.root / ".cache").mkdir()
    (stack.root / f".cache/vllm-{VERSION}.tar.gz").write_bytes(make_sdist(RELEASE, VERSION))
    port = (folder / "0006-Ported.patch").read_text().replace("vllm/g.py", "vllm/moved_g.py")
    ports = folder / "ports" / VERSION
    ports.mkdir(parents=True)
    (ports / "0006-planning.patch").write_text(port)
    return stack


@pytest.fixture
def stack(original: Stack, tmp_path: Path) -> Stack:
    return original.copy(tmp_path)


def write_series(stack: Stack, *but: str) -> None:
    names = sorted(file.name for file in (stack.root / "patches").glob("*.patch"))
    kept = [name for name in names if name not in but]
    (stack.root / "patches/series").write_text("\n".join(kept) + "\n")


def check(stack: Stack, *args: str, code: int = 1) -> str:
    return stack.run("scripts.series", "check-upstream", VERSION, *args, code=code)


def outcomes(stack: Stack) -> dict[str, dict[str, Any]]:
    report = json.loads((stack.root / f".work/upstream/{VERSION}.json").read_text())
    assert report["version"] == VERSION
    return {outcome["patch"]: outcome for outcome in report["patches"]}


def test_every_verdict(stack: Stack) -> None:
    out = check(stack)
    found = outcomes(stack)
    assert {name: outcome["result"] for name, outcome in found.items()} == {
        "0001-Clean.patch": "clean",
        "0002-Moved.patch": "clean",
        "0003-Fuzzy.patch": "fuzzy",
        "0004-Conflict.patch": "conflict",
        "0005-Upstream.patch": "already upstream",
        "0006-Ported.patch": "clean",
        "0007-On-top.patch": "clean",
    }
    assert found["0002-Moved.patch"]["note"] == "2 hunks moved"
    assert found["0003-Fuzzy.patch"]["note"] == "by three-way merge"
    assert found["0004-Conflict.patch"]["note"] == "in 2 hunks"
    assert found["0006-Ported.patch"]["file"] == "0006-planning.patch"
    assert [name for name, outcome in found.items() if outcome["port"]] == ["0006-Ported.patch"]
    assert "[6/7] 0006-planning.patch (port)  clean" in out
    assert "4 clean, 1 fuzzy, 1 conflict, 1 already upstream" in out
    assert "is not pinned; the sdist taken has sha256" in out


def test_a_conflict_names_the_hunks_that_fail(stack: Stack) -> None:
    out = check(stack)
    hunks = outcomes(stack)["0004-Conflict.patch"]["hunks"]
    assert [(hunk["file"], hunk["reason"]) for hunk in hunks] == [
        ("vllm/d.py", "patch does not apply"),
        ("vllm/d.py", "is there already"),
    ]
    assert "-text 10\n+ours\n" in hunks[0]["text"]
    assert "        -text 10\n        +ours\n" in out


def test_the_scratch_tree_holds_what_worked(stack: Stack, tmp_path: Path) -> None:
    scratch = tmp_path / "deep" / "scratch"
    before = stack.contents()
    check(stack, "--scratch", str(scratch))
    assert (scratch / "vllm/added.py").read_text() == "new\nmore\n"
    assert (scratch / "vllm/c.py").read_text() == lines(line8="theirs", line10="ours", line30=ONLY)
    assert (scratch / "vllm/d.py").read_text() == RELEASE["vllm/d.py"]
    assert (scratch / "vllm/e.py").read_text() == lines()
    log = stack.git("log", "--format=%s", "--reverse", cwd=scratch).splitlines()
    assert log[1:] == ["Clean", "Moved", "Fuzzy", "Ported", "On top"]
    assert stack.git("status", "--short", cwd=scratch) == ""
    assert stack.contents() == before


def test_without_the_base_nothing_is_merged(stack: Stack) -> None:
    shutil.rmtree(stack.vllm)
    check(stack)
    found = outcomes(stack)
    fuzzy = found["0003-Fuzzy.patch"]
    assert (fuzzy["result"], fuzzy["note"]) == ("fuzzy", "with one line of context")
    assert found["0005-Upstream.patch"]["result"] == "already upstream"


def test_all_clean_or_upstream_is_success_and_repeats(stack: Stack) -> None:
    write_series(stack, "0003-Fuzzy.patch", "0004-Conflict.patch")
    for _ in range(2):
        check(stack, code=0)


def test_without_its_port_a_patch_conflicts(stack: Stack) -> None:
    shutil.rmtree(stack.root / "patches/ports")
    check(stack)
    outcome = outcomes(stack)["0006-Ported.patch"]
    assert outcome["result"] == "conflict"
    assert outcome["hunks"][0]["reason"] == "does not exist in index"


def test_ports_that_do_not_fit(stack: Stack) -> None:
    ports = stack.root / "patches/ports" / VERSION
    shutil.copy(ports / "0006-planning.patch", ports / "0099-stray.patch")
    assert "0099-stray.patch" in check(stack)
    shutil.copy(ports / "0006-planning.patch", ports / "0006-second.patch")
    assert "two ports of 0006-Ported.patch" in check(stack)


def test_a_scratch_folder_in_use_is_left_alone(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for scratch in (tmp_path, tmp_path / "mine"):
        assert "no empty folder" in check(stack, "--scratch", str(scratch))
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_broken_sdist_is_an_error(stack: Stack) -> None:
    (stack.root / f".cache/vllm-{VERSION}.tar.gz").write_bytes(b"not a tar file")
    assert "can't be unpacked" in check(stack)
    assert not (stack.root / ".work/upstream" / f"vllm-{VERSION}").exists()


PLAN = """\
SIZE = 1


class Plan:
    def cost(self):
        return 1

    @property
    def pages(self):
        return 2

    def price(self):
        return 3


def grouped():
    return 4


def left():
    return 5


def alone():
    return 6
"""
NEW_PLAN = PLAN.replace("return 2", "pages = 2\n        return pages")
MOVED = NEW_PLAN[: NEW_PLAN.index("def left")]
ELSEWHERE = "def left():\n    return 55\n\n\nclass Other:\n    def price(self):\n        return 3\n"


def test_drift_by_file_and_function(tmp_path: Path) -> None:
    """The second patch edits what the first adds: its nearest owner in the base is named."""
    first = PLAN.replace("return 1", "return 10").replace("return 2", "return 20")
    first = first.replace("SIZE = 1", "SIZE = 10").replace("return 5", "return 50")
    first += "\n\ndef ours():\n    return 7\n"
    second = first.replace("return 7", "return 70").replace("return 3", "return 30")
    second = second.replace("return 6", "return 60")
    patches: Patches = [
        ("One", REASON, {"vllm/plan.py": first, "vllm/notes.txt": "b\n", "vllm/kernel.py": "K\n"}),
        ("Two", REASON, {"vllm/plan.py": second, "vllm/kernel.py": "K2\n", "vllm/gone.py": None}),
    ]
    base = {"vllm/plan.py": PLAN, "vllm/notes.txt": "a\n", "vllm/gone.py": "def f():\n    ...\n"}
    stack = make(tmp_path, base, patches)
    stack.run("scripts.series", "export")
    (stack.root / ".cache").mkdir(exist_ok=True)
    release = {"vllm/plan.py": MOVED.replace("    def price(self):\n        return 3\n", "")}
    release |= {"vllm/other.py": ELSEWHERE, "vllm/notes.txt": "a\n"}
    (stack.root / f".cache/vllm-{VERSION}.tar.gz").write_bytes(make_sdist(release, VERSION))
    check(stack)
    report = json.loads((stack.root / f".work/upstream/{VERSION}.json").read_text())
    found = {
        (one["patch"][:4], one["file"].removeprefix("vllm/"), one["function"]): one["state"]
        for one in report["drift"]
    }
    assert found == {
        ("0001", "plan.py", ""): "changed",
        ("0001", "plan.py", "Plan.cost"): "same",
        ("0001", "plan.py", "Plan.pages"): "changed",
        ("0001", "plan.py", "left"): "moved",
        ("0001", "notes.txt", ""): "same",
        ("0002", "plan.py", ""): "changed",
        ("0002", "plan.py", "Plan.price"): "vanished",
        ("0002", "plan.py", "alone"): "vanished",
        ("0002", "gone.py", "f"): "vanished",
    }
    notes = {one["function"]: one["note"] for one in report["drift"]}
    assert notes["left"] == "to vllm/other.py, +1 -1 lines"
    assert notes["Plan.pages"] == "+2 -1 lines"
    assert notes["f"] == "with its file"


def test_new_files_are_the_same_in_a_port(stack: Stack) -> None:
    """0001 adds vllm/added.py, 0007 edits it; a port of 0007 that edits it otherwise has to say."""
    write_series(stack, "0003-Fuzzy.patch", "0004-Conflict.patch")
    check(stack, code=0)
    port = stack.root / "patches/ports" / VERSION / "0007-On-top.patch"
    tree = stack.root / f".work/upstream/vllm-{VERSION}"
    (tree / "vllm/added.py").write_text("new\nother\n")
    stack.git("commit", "--quiet", "--all", "--amend", "--no-edit", cwd=tree)
    shown = ("format-patch", "-1", "--full-index", "--stdout")
    port.write_text(stack.git(*shown, cwd=tree))
    output = check(stack)
    assert "not the same file in both: vllm/added.py, in 0007-On-top.patch" in output
    assert "no line `Differs: vllm/added.py: REASON`" in output
    explained = f"{REASON}Differs: vllm/added.py: the release has another word for it\n"
    stack.git("commit", "--quiet", "--amend", f"--message=On top\n\n{explained}", cwd=tree)
    port.write_text(stack.git(*shown, cwd=tree))
    check(stack, code=0)


def test_kernels_of_the_series_are_the_same_in_its_ports() -> None:
    for folder in sorted((PATCHES / "ports").iterdir()):
        assert [one for one in differing(folder.name) if not one.explained] == []
