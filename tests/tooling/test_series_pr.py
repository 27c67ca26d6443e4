"""make pr on a small base: branch, text, what is left to fill, and that edits are kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ab_fixtures import Patches, Stack
from check_lab import BASE, OLD_ERROR, TEMPLATE, counted, good, lab, message
from series_lab import REASON, make_sdist

from scripts.common import Failure
from scripts.series import pull_text

LIST = """
- one thing
  goes on
- #5 counts less
"""
TABLE = "One GPU, measured\ntwice:\n\n| case | us |\n| --- | --- |\n| a | 1 |"


def series(log: Path) -> Patches:
    """0003 edits what 0001 adds, and says that it needs 0002; 0004 forgets to say so of 0002."""
    why = "Kernels read\nit slowly. #34 (open) reads it twice."
    return [
        ("[Core] A plan", REASON, {"vllm/new.py": "SIZE = 1\n", "vllm/other.py": "A = 1\n"}),
        ("[Core] A name", REASON, {"vllm/name.py": "SIZE = 2\n"}),
        (
            "[Kernel] Faster",
            message(
                Why=why,
                What=LIST,
                Numbers=TABLE,
                Tests="Every size.",
                Limits="Small sizes.",
                status="Pending (answers #7; related: #5, #34, #56)\nKernel: fast\nDepends: 0002",
            ),
            {
                "vllm/new.py": "SIZE = 2\n",
                "tests/test_new.py": counted(log, "new", 2),
                "docs/page.md": "Words.\n",
            },
        ),
        ("[Core] Uses the name", REASON, {"tests/test_name.py": counted(log, "name", 2)}),
    ]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    folder = tmp_path_factory.mktemp("original")
    return lab(folder, series(folder / "log"))


@pytest.fixture(scope="module")
def made(original: Stack) -> Path:
    """The folder of 0003, and beside it what `make pr` printed."""
    output = original.run("scripts.series", "pr", "0003")
    folder = original.root / ".work/pr/0003-Kernel-Faster"
    (folder.parent / "output").write_text(output)
    return folder


@pytest.fixture
def stack(original: Stack, made: Path, tmp_path: Path) -> Stack:
    """A copy with the folder in it."""
    return original.copy(tmp_path)


def folder_of(stack: Stack) -> Path:
    return stack.root / ".work/pr/0003-Kernel-Faster"


def test_the_branch_holds_what_the_patch_needs(original: Stack, made: Path, tmp_path: Path) -> None:
    tree = made / "vllm"
    log = original.git("log", "--format=%s", "base..0003-Kernel-Faster", cwd=tree).splitlines()
    assert log == ["[Kernel] Faster", "[Core] A name", "[Core] A plan"]
    assert "needs 0001, 0002" in (made.parent / "output").read_text()
    assert not (tree / "tests/test_name.py").exists()
    assert original.git("status", "--porcelain", cwd=tree) == ""
    # The files are the branch.
    original.git("worktree", "add", "-q", "--detach", str(tmp_path / "w"), "base", cwd=tree)
    files = sorted(str(file) for file in (made / "patches").iterdir())
    assert len(files) == 3
    original.git("am", "-q", "--keep-non-patch", *files, cwd=tmp_path / "w")
    assert original.git("diff", "0003-Kernel-Faster", cwd=tmp_path / "w") == ""


def test_commits_leave_the_sign_off_to_the_sender(original: Stack, made: Path) -> None:
    body = original.git("show", "-s", "--format=%B", cwd=made / "vllm")
    for ours in ("Upstream-Status", "Kernel:", "Depends:", "some.body@example.com"):
        assert ours not in body
    assert body.rstrip().endswith(f"{pull_text.ASSISTED}\n{pull_text.SIGN_OFF}")


def test_the_text_follows_the_template(made: Path) -> None:
    text = (made / "PULL_REQUEST.md").read_text()
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Purpose", "Test Plan", "Test Result"]
    assert "Kernels read it slowly." in text
    assert "- one thing goes on\n- #5 counts less\n" in text
    assert "One GPU, measured twice:\n\n| case | us |\n| --- | --- |\n| a | 1 |\n" in text
    assert "- [Core] A plan (#FILL)\n- [Core] A name (#FILL)\n" in text
    assert "- #7 (answers): settled by this\n" in text
    assert "- #5 (related): #5 counts less\n" in text
    assert "- #34 (related): #34 (open) reads it twice.\n" in text
    assert "- #56 (related): FILL: how this differs\n" in text
    assert "### Limits\n\nSmall sizes.\n" in text
    assert "### Documentation\n\n- docs/page.md\n" in text
    assert "AI tools were used" in text
    assert "\npytest tests/test_new.py\n" in text
    assert re.search(r"^- tests: 1 passed on a CPU", text, re.MULTILINE)
    assert text.rstrip().endswith("- [ ] The purpose of the PR.\n- [ ] The test plan.")
    assert "BEFORE SUBMITTING" not in text


def test_what_is_left_is_listed(made: Path) -> None:
    output = (made.parent / "output").read_text()
    points = output.partition("points are left to the sender\n")[2].splitlines()
    assert sum(point.startswith("  commit ") for point in points) == 2 * 3
    text = (made / "PULL_REQUEST.md").read_text()
    assert len(points) == 2 * 3 + len(pull_text.blanks(text))


def test_again_gives_the_same(stack: Stack) -> None:
    folder = folder_of(stack)
    files = [*folder.glob("*.md"), *(folder / "patches").iterdir()]
    before = {path: path.read_bytes() for path in files}
    commit = stack.git("rev-parse", "HEAD", cwd=folder / "vllm")
    stack.run("scripts.series", "pr", "3")
    assert {path: path.read_bytes() for path in before} == before
    assert len(before) == 5
    assert stack.git("rev-parse", "HEAD", cwd=folder / "vllm") == commit


def test_an_edited_folder_is_checked_and_kept(stack: Stack) -> None:
    text = folder_of(stack) / "PULL_REQUEST.md"
    text.write_text(text.read_text().replace("FILL", "done"))
    tree = folder_of(stack) / "vllm"
    message = stack.git("show", "-s", "--format=%B", cwd=tree).replace("FILL", "done")
    stack.git("reset", "--quiet", "--soft", "base", cwd=tree)
    stack.git("commit", "--quiet", "--message", message, cwd=tree)
    output = stack.run("scripts.series", "pr", "0003")
    assert "was edited and is kept" in output and "0 points are left" in output
    assert "was edited" not in stack.run("scripts.series", "pr", "0003", "--fresh")
    assert "FILL" in text.read_text()


def test_what_only_shows_at_run_time_fails_on_the_branch(stack: Stack) -> None:
    output = stack.run("scripts.series", "pr", "0004", code=1)
    assert "needs no other patch" in output and "tests FAILED" in output
    text = (stack.root / ".work/pr/0004-Core-Uses-the-name/PULL_REQUEST.md").read_text()
    assert "- tests: FILL: FAILED" in text


def test_names_of_patches(stack: Stack) -> None:
    assert "name a patch by its number" in stack.run("scripts.series", "pr", "9", code=1)


def test_a_port_goes_to_its_release(tmp_path: Path) -> None:
    stack = lab(tmp_path, good(tmp_path / "log"))
    there = {**BASE, "vllm/moved.py": f"{OLD_ERROR}SIZE = 1\n", "vllm/plan.py": "NEW = 1\n"}
    release = {name: text for name, text in there.items() if text is not None}
    (stack.root / ".cache/vllm-9.9.9.tar.gz").write_bytes(make_sdist(release, "9.9.9"))
    port = stack.patches / "ports/9.9.9" / stack.patch(1).name
    port.parent.mkdir(parents=True)
    text = stack.patch(1).read_text().replace("vllm/plan.py", "vllm/moved.py")
    port.write_text(text.replace("from vllm.plan ", "from vllm.moved "))
    stack.run("scripts.series", "pr", "0001", "--version", "9.9.9")
    folder = stack.root / ".work/pr/0001-Core-Plan-better-9.9.9"
    assert "tested against v9.9.9" in (folder / "PULL_REQUEST.md").read_text()
    assert "SIZE = 2" in (folder / "vllm/vllm/moved.py").read_text()


def test_near_ones_are_told_once_and_only_as_such() -> None:
    near = (
        "- #8 (open) writes it twice,\n  over there.\n- #9 does so, too.\n- #7 (merged) began it."
    )
    status = "Upstream-Status: Pending (builds on #7; related: #9)"
    body = f"[X] Y\n\nWhy: #8 is slow.\n\nLimits: none.\n\nNear:\n{near}\n\n{status}\n"
    facts = pull_text.Facts([], [], [], "1", [], False)
    text = pull_text.pull_request(body, TEMPLATE, facts)
    duplicates = text.partition("### Why this is not a duplicate\n\n")[2].partition("\n\n")[0]
    assert duplicates.splitlines()[:-1] == [
        "- #7 (builds on): #7 (merged) began it.",
        "- #9 (related): #9 does so, too.",
        "- #8 (related): #8 (open) writes it twice, over there.",
    ]
    assert text.count("twice, over there") == 1
    assert "### Limits\n\nnone.\n" in text


def test_another_template_is_refused() -> None:
    facts = pull_text.Facts([], [], [], "1", [], False)
    with pytest.raises(Failure, match="Risk"):
        pull_text.pull_request("[X] Y\n\nWhy: z", f"{TEMPLATE}\n## Risk\n", facts)


def test_code_keeps_its_lines() -> None:
    text = "Run\nthis:\n\n    make a\n    make b\n\n```bash\nx\ny\n```\n1. one\n   more\n2. two"
    assert pull_text.unwrapped(text) == (
        "Run this:\n\n    make a\n    make b\n\n```bash\nx\ny\n```\n1. one more\n2. two"
    )
