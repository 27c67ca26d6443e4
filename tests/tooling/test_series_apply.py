"""apply, unapply and status on the small base."""

from __future__ import annotations

from pathlib import Path

import pytest
from series_lab import BASE_FILES, Lab, replace


def test_apply_gives_every_file_its_content(lab: Lab) -> None:
    lab.run("apply")
    assert lab.depth() == 6
    assert lab.changes() == ""
    contents = lab.contents()
    assert b"line thirty\n" in contents["vllm/a.py"]
    assert contents["docs/crlf.txt"] == b"first\r\n2nd\r\nthird\r\n"
    assert contents["vllm/table.bin"] == bytes(range(256))
    assert "vllm/gone.py" not in contents and "vllm/old_name.py" not in contents
    assert (lab.vllm / "tools/run.sh").stat().st_mode & 0o100
    assert lab.git("show", "-s", "--format=%s").strip().startswith("[Tools] Make the tool")


def test_same_commits_everywhere(lab: Lab, applied: Lab) -> None:
    lab.run("apply")
    assert lab.head() == applied.head()


def test_applied_series_is_left_alone(applied: Lab) -> None:
    before = applied.head(), applied.contents()
    assert "6 of 6 patches are already applied" in applied.run("apply")
    assert (applied.head(), applied.contents()) == before


def test_half_applied_series_is_completed(applied: Lab) -> None:
    whole = applied.head()
    applied.git("reset", "--hard", "HEAD~4")
    assert "partly applied (2 of 6)" in applied.run("status")
    output = applied.run("apply")
    assert "applying 3/6" in output and "applying 2/6" not in output
    assert applied.head() == whole


@pytest.mark.parametrize("path", ["vllm/a.py", "notes.txt"], ids=["tracked", "untracked"])
def test_dirty_tree_is_refused(applied: Lab, path: str) -> None:
    applied.git("reset", "--hard", "HEAD~2")
    (applied.vllm / path).write_text("mine\n")
    for command in ("apply", "unapply"):
        output = applied.run(command, code=1)
        assert path in output and "stash -u" in output
    assert (applied.vllm / path).read_text() == "mine\n"
    assert applied.depth() == 4


def test_ignored_files_do_not_matter(applied: Lab) -> None:
    (applied.vllm / "vllm/_C.so").write_bytes(b"binary")
    applied.run("unapply")
    applied.run("apply")
    assert (applied.vllm / "vllm/_C.so").read_bytes() == b"binary"


def test_if_needed_accepts_edits_on_an_applied_series_only(applied: Lab) -> None:
    replace(applied.vllm / "vllm/a.py", "line 20\n", "line twenty\n")
    assert "vllm/a.py" in applied.run("apply", "--if-needed")
    applied.run("apply", code=1)
    applied.git("stash")
    applied.git("reset", "--hard", "HEAD~1")
    applied.git("stash", "pop")
    applied.run("apply", "--if-needed", code=1)
    assert "line twenty" in (applied.vllm / "vllm/a.py").read_text()


def test_failing_patch_names_file_and_hunk_then_rerun_then_unapply(lab: Lab) -> None:
    good = lab.patch(3).read_bytes()
    replace(lab.patch(3), "\n-line 30\n", "\n-line 30 as it never was\n")
    output = lab.run("apply", code=1)
    assert lab.names()[2] in output
    assert "vllm/a.py: hunk 1 of 1 does not apply: @@ -27," in output
    assert lab.depth() == 2 and lab.changes() == ""
    (lab.vllm / "mine.so").write_text("ignored, but the user's")
    lab.run("apply", code=1)
    assert lab.depth() == 2 and lab.changes() == ""
    lab.patch(3).write_bytes(good)
    lab.run("apply")
    lab.run("unapply")
    assert lab.depth() == 0 and lab.changes() == ""
    assert (lab.vllm / "mine.so").read_text() == "ignored, but the user's"


def test_failing_hunk_is_told_from_its_neighbours(lab: Lab) -> None:
    replace(lab.patch(1), "\n-line 55\n", "\n-line 5555\n")
    assert "vllm/a.py: hunk 2 of 2 does not apply: @@ -52," in lab.run("apply", code=1)
    assert lab.depth() == 0 and lab.changes() == ""


def test_missing_file_is_named(lab: Lab) -> None:
    replace(
        lab.patch(3), "diff --git a/vllm/a.py b/vllm/a.py", "diff --git a/vllm/b.py b/vllm/b.py"
    )
    replace(lab.patch(3), "--- a/vllm/a.py\n+++ b/vllm/a.py", "--- a/vllm/b.py\n+++ b/vllm/b.py")
    assert "vllm/b.py" in lab.run("apply", code=1)
    assert lab.depth() == 2


def test_contents_are_checked_against_the_index_lines(lab: Lab) -> None:
    replace(lab.patch(3), "\n+line thirty\n", "\n+line thirsty\n")
    output = lab.run("apply", code=1)
    assert "index lines" in output and "vllm/a.py" in output
    assert lab.depth() == 2 and lab.changes() == ""
    assert "line 30\n" in (lab.vllm / "vllm/a.py").read_text()


def test_unapply_restores_the_base_and_repeats(applied: Lab) -> None:
    applied.run("unapply")
    base = {name: content.encode() for name, content in BASE_FILES.items()}
    assert applied.contents() == base
    assert "plain base already" in applied.run("unapply")


def test_unexported_commit_is_not_lost(applied: Lab) -> None:
    replace(applied.vllm / "vllm/a.py", "line 20\n", "line twenty\n")
    applied.commit("[Core] Not exported yet")
    mine = applied.head()
    assert "make export" in applied.run("apply")
    output = applied.run("unapply", code=1)
    assert "Not exported yet" in output and "make export" in output
    assert applied.head() == mine
    applied.run("unapply", "--save")
    assert applied.depth() == 0
    assert mine in applied.git("branch", "--list", "saved-series/*", "--format=%(objectname)")


def test_unexported_commit_below_missing_patches_is_refused(applied: Lab) -> None:
    applied.git("reset", "--hard", "HEAD~3")
    replace(applied.vllm / "vllm/a.py", "line 20\n", "line twenty\n")
    applied.commit("[Core] In the middle")
    mine = applied.head()
    output = applied.run("apply", code=1)
    assert "In the middle" in output and "make export" in output
    assert applied.head() == mine


@pytest.mark.parametrize("what", ["message", "content"])
def test_amended_commit_is_not_lost(applied: Lab, what: str) -> None:
    if what == "message":
        applied.git("commit", "--amend", "--message=[Tools] Other words")
    else:
        (applied.vllm / "tools/run.sh").write_text("#!/bin/sh\nexit 1\n")
        applied.git("commit", "--all", "--amend", "--no-edit")
    mine = applied.head()
    assert "make export" in applied.run("status")
    assert "make export" in applied.run("unapply", code=1)
    assert applied.head() == mine


def test_unfinished_git_operation_of_the_user_is_left_alone(applied: Lab) -> None:
    applied.git("reset", "--hard", "HEAD~1")
    foreign = applied.root / "foreign.patch"
    foreign.write_bytes(applied.patch(1).read_bytes())
    replace(foreign, "line three", "line 3 1/2")
    with pytest.raises(Exception, match="am"):
        applied.git("am", str(foreign))
    session = applied.vllm / ".git/rebase-apply"
    assert "am --abort" in applied.run("apply", code=1)
    assert session.exists()


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        ([], "clean (0 of 6 applied)"),
        (["am --keep-non-patch 1"], "partly applied (1 of 6)"),
        (["commit mine"], "can't tell"),
        (["orphan"], "can't tell"),
    ],
    ids=["clean", "partly", "foreign commit", "foreign history"],
)
def test_status_tells_states_from_content(applied: Lab, prepare: list[str], words: str) -> None:
    applied.run("unapply")
    for step in prepare:
        if step.startswith("am"):
            applied.git("am", "--keep-non-patch", "--keep-cr", str(applied.patch(1)))
        elif step.startswith("commit"):
            (applied.vllm / "mine.py").write_text("mine = 1\n")
            applied.commit("[Core] Mine")
        else:
            applied.git("checkout", "--quiet", "--orphan", "other")
            applied.commit("Other history")
    assert words in applied.run("status")


def test_status_lists_edits(applied: Lab) -> None:
    (applied.vllm / "notes.txt").write_text("mine\n")
    output = applied.run("status")
    assert "applied (6 of 6)" in output and "1 uncommitted" in output and "notes.txt" in output


def test_status_without_a_base(lab: Lab) -> None:
    assert "make apply" in lab.run("status")
    assert "make apply" in lab.run("unapply", code=1)


def test_series_naming_a_missing_file(lab: Lab) -> None:
    lab.patch(2).unlink()
    assert "0002-" in lab.run("apply", code=1)
    assert not Path(lab.vllm).exists()
