"""export: the same bytes every time, nothing lost, nothing of the machine."""

from __future__ import annotations

import pytest
from series_lab import COMMIT, REASON, Lab, replace


def test_export_of_the_applied_series_is_identical(applied: Lab) -> None:
    before = applied.exported()
    assert "0 written, 6 unchanged" in applied.run("export")
    assert applied.exported() == before


SETTINGS = {
    "diff.noprefix": "true",
    "diff.mnemonicPrefix": "true",
    "diff.context": "9",
    "diff.algorithm": "histogram",
    "diff.renames": "false",
    "core.abbrev": "5",
    "format.signOff": "true",
    "format.subjectPrefix": "RFC",
    "format.headers": "To: somebody",
    "format.attach": "xx",
    "format.useAutoBase": "true",
    "i18n.logOutputEncoding": "ISO-8859-1",
}


def test_no_setting_changes_the_bytes(applied: Lab) -> None:
    before = applied.exported()
    for key, value in SETTINGS.items():
        applied.git("config", key, value)
    applied.run("export", COLUMNS="40")
    assert applied.exported() == before


def test_patch_carries_the_true_base_and_nothing_that_varies(applied: Lab) -> None:
    for number in range(1, 7):
        text = applied.patch(number).read_bytes().decode()
        assert text.startswith("From " + "0" * 40 + " ")
        assert f"\n---\nbase-commit: {COMMIT}\n\ndiff --git " in text
        assert "\n-- \n" not in text, "a signature names git's version"
        assert "Subject: [PATCH] " in text or "Subject: =?UTF-8?q?=5BPATCH=5D" in text


def test_plain_git_am_takes_the_patches(applied: Lab) -> None:
    whole = applied.git("rev-parse", "HEAD^{tree}")
    applied.run("unapply")
    for number in range(1, 7):
        applied.git("am", "--keep-cr", str(applied.patch(number)))
    assert applied.git("rev-parse", "HEAD^{tree}") == whole


def test_new_commit_becomes_a_patch_and_applies(applied: Lab) -> None:
    replace(applied.vllm / "vllm/a.py", "line 20\n", "line twenty\n")
    applied.commit("[Core] A seventh", "| a | b |\n| --- | --- |\n| 1 | 2 |\n\n" + REASON)
    applied.run("export")
    assert applied.names()[-1] == "0007-Core-A-seventh.patch"
    assert "applied (7 of 7)" in applied.run("status")
    whole, files = applied.head(), applied.exported()
    applied.run("unapply")
    applied.run("apply")
    assert applied.git("diff", whole, "HEAD") == ""
    assert applied.git("show", "-s", "--format=%B", whole) == applied.git(
        "show", "-s", "--format=%B", "HEAD"
    )
    applied.run("export")
    assert applied.exported() == files


def test_stale_patches_go_and_ports_stay(applied: Lab) -> None:
    ports = applied.patches / "ports" / "0.33.0"
    ports.mkdir(parents=True)
    (ports / "0001-port.patch").write_text("a port\n")
    (applied.patches / "0009-not-in-the-series.patch").write_text("somebody's\n")
    first = applied.git("rev-parse", "HEAD~5").strip()
    applied.git("rebase", "--quiet", "--onto", "base", first)
    output = applied.run("export", code=1)
    assert "0001-Core-Change-both-ends-of-a.patch" in output and "--drop" in output
    assert len(applied.names()) == 6
    applied.run("export", "--drop")
    names = applied.names()
    assert len(names) == 5 and names[0] == "0001-Kernel-Add-a-kernel.patch"
    on_disk = {path.name for path in applied.patches.glob("*.patch")}
    assert on_disk == {*names, "0009-not-in-the-series.patch"}
    assert (ports / "0001-port.patch").read_text() == "a port\n"


def test_half_applied_series_is_not_cut(applied: Lab) -> None:
    before = applied.exported()
    applied.git("reset", "--hard", "HEAD~3")
    assert "make apply" in applied.run("export", code=1)
    applied.run("unapply")
    applied.run("export", code=1)
    assert applied.exported() == before


def test_uncommitted_work_is_pointed_out(applied: Lab) -> None:
    (applied.vllm / "notes.txt").write_text("mine\n")
    output = applied.run("export")
    assert "warning" in output and "notes.txt" in output


def test_empty_commit_is_refused(applied: Lab) -> None:
    applied.git("commit", "--allow-empty", "--message=Nothing")
    assert "changes no file" in applied.run("export", code=1)


def test_merge_is_refused(applied: Lab) -> None:
    applied.git("switch", "--quiet", "--create", "side", "HEAD~1")
    (applied.vllm / "side.txt").write_text("side\n")
    applied.commit("Side")
    applied.git("switch", "--quiet", "series")
    applied.git("merge", "--quiet", "--no-edit", "side")
    assert "merge" in applied.run("export", code=1)
    assert "merge" in applied.run("apply", code=1)


@pytest.mark.parametrize(
    "line", ["---", "diff --git a/x b/x", "-- >8 --"], ids=["rule", "diff", "scissors"]
)
def test_message_that_git_am_would_cut(applied: Lab, line: str) -> None:
    replace(applied.vllm / "vllm/a.py", "line 20\n", "line twenty\n")
    applied.commit("[Core] Words", f"before\n\n{line}\n\nafter\n\n{REASON}")
    before = applied.exported()
    if line == "-- >8 --":
        applied.run("export")
        applied.run("unapply")
        applied.run("apply")
        assert "before\n\n-- >8 --\n\nafter" in applied.git("show", "-s", "--format=%B")
    else:
        assert "message" in applied.run("export", code=1)
        assert applied.exported() == before
