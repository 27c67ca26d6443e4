"""make range-diff between two versions of the small series."""

from __future__ import annotations

import re

import pytest
from series_lab import Lab, replace


@pytest.fixture
def tagged(applied: Lab) -> Lab:
    """The lab as a repository whose series has the tag v1."""
    applied.git("init", "--quiet", cwd=applied.root)
    applied.git("add", "patches", cwd=applied.root)
    applied.git("commit", "--quiet", "--message=one", cwd=applied.root)
    applied.git("tag", "v1", cwd=applied.root)
    return applied


def summary(output: str) -> list[tuple[str, str]]:
    """State and patch of each line, the number of the patch alone."""
    head = output.partition("\n\n")[0]
    found = re.findall(r"^([a-z, ]+?) +(\d{4}-\S+)(?: \(was .*\))?$", head, re.MULTILINE)
    return [(state, name) for state, name in found]


def test_nothing_changed(tagged: Lab) -> None:
    found = summary(tagged.run("range-diff", "v1"))
    assert found == [("same", name) for name in tagged.names()]


def test_changed_dropped_added_and_moved(tagged: Lab) -> None:
    names = tagged.names()
    before = tagged.git("status", "--porcelain"), tagged.head()
    tagged.run("unapply")
    # 0002 gets another line, 0003 goes, 0004 and 0005 move up, and a new one comes last.
    patches = [tagged.patch(number) for number in (1, 2, 4, 5, 6)]
    tagged.git("am", "--quiet", "--keep-non-patch", "--keep-cr", str(patches[0]), str(patches[1]))
    replace(tagged.vllm / "tests/test_kernel.py", "test_tile", "test_tiles")
    tagged.git("commit", "--quiet", "--all", "--amend", "--no-edit")
    tagged.git("am", "--quiet", "--keep-non-patch", "--keep-cr", *map(str, patches[2:]))
    (tagged.vllm / "vllm/last.py").write_text("LAST = 1\n")
    tagged.commit("[Core] The last")
    tagged.run("export", "--drop")
    output = tagged.run("range-diff", "v1")
    assert summary(output) == [
        ("same", names[0]),
        ("changed", names[1]),
        ("dropped", names[2]),
        ("moved", "0003-Core-Rename-a-file.patch"),
        ("moved", "0004-Core-Edit-the-kernel-drop-a-file.patch"),
        ("moved", tagged.names()[4]),
        ("added", "0006-Core-The-last.patch"),
    ]
    assert "(was 0004-Core-Rename-a-file.patch)" in output
    assert "-+def test_tile(): ..." in output and "++def test_tiles(): ..." in output
    assert before[0] == tagged.git("status", "--porcelain")


def test_a_renamed_patch_is_still_itself(tagged: Lab) -> None:
    message = tagged.git("show", "-s", "--format=%B").replace("at last", "again")
    tagged.git("commit", "--quiet", "--amend", "--message", message)
    tagged.run("export", "--drop")
    found = summary(tagged.run("range-diff", "v1"))
    assert found[-1] == ("changed, renamed", tagged.names()[-1])
    assert [state for state, _ in found[:-1]] == ["same"] * 5


def test_no_such_version(tagged: Lab) -> None:
    assert "v9 is no commit of this repository (tags: v1)" in tagged.run("range-diff", "v9", code=1)
    tagged.git("rm", "--quiet", "--cached", "patches/series", cwd=tagged.root)
    tagged.git("commit", "--quiet", "--message=two", cwd=tagged.root)
    assert "has no patches/series" in tagged.run("range-diff", "HEAD", code=1)


def test_another_base_is_refused(tagged: Lab) -> None:
    other = "160000,89abcdef89abcdef89abcdef89abcdef89abcdef,vllm"
    tagged.git("update-index", "--add", "--cacheinfo", other, cwd=tagged.root)
    tagged.git("commit", "--quiet", "--message=two", cwd=tagged.root)
    assert "lay on another base (89abcdef89ab)" in tagged.run("range-diff", "HEAD", code=1)
