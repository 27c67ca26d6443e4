"""The patch lint and the sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from series_lab import Lab, replace


def test_exported_series_is_sound(applied: Lab) -> None:
    before = applied.head(), applied.exported()
    assert "patches/ is sound: 6 patches" in applied.run("lint")
    assert (applied.head(), applied.exported()) == before
    assert not (applied.root / ".work/lint").exists()


def test_sound_whatever_is_applied(applied: Lab) -> None:
    applied.run("unapply")
    assert "patches/ is sound" in applied.run("lint")


def test_submodule_that_is_not_pinned_to_the_base(applied: Lab) -> None:
    applied.git("init", "--quiet", cwd=applied.root)
    applied.git("add", "--all", cwd=applied.root)
    output = applied.run("lint", code=1)
    assert "recorded at" in output
    remedy = output.splitlines()[-2].partition(": git ")[2]
    applied.git(*remedy.split(), cwd=applied.root)
    applied.run("lint")


def _append_file(lab: Lab) -> None:
    (lab.patches / "0007-extra.patch").write_bytes(lab.patch(6).read_bytes())


def _remove_file(lab: Lab) -> None:
    lab.patch(6).unlink()


def _reorder(lab: Lab) -> None:
    names = lab.names()
    (lab.patches / "series").write_text("\n".join([names[1], names[0], *names[2:]]) + "\n")


def _in_patch(old: str, new: str) -> Callable[[Lab], None]:
    return lambda lab: replace(lab.patch(2), old, new)


def _cut_reason(lab: Lab) -> None:
    content = lab.patch(2).read_bytes()
    start, end = content.index(b"The reason is"), content.index(b"Upstream-Status")
    lab.patch(2).write_bytes(content[:start] + b"Because.\n\n" + content[end:])


def _bad_port(lab: Lab) -> None:
    port = lab.patches / "ports" / "0.33.0" / "0001-port.patch"
    port.parent.mkdir(parents=True)
    port.write_bytes(lab.patch(1).read_bytes().replace(b"Upstream-Status", b"Status"))


# The path is put together here so that this file passes the check for such paths itself.
PATH = "/" + "home/somebody/vllm"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_append_file, "0007-extra.patch: not in patches/series"),
        (_remove_file, "is not in patches/"),
        (_reorder, "the numbers are not 0001, 0002"),
        (_in_patch("Upstream-Status: Pending\n", ""), "no Upstream-Status: line"),
        (_in_patch("Signed-off-by: Some Body", "Thanks-to: Some Body"), "no Signed-off-by: line"),
        (_in_patch("<some.body@example.com>\n---", "at home\n---"), "is not NAME <ADDRESS>"),
        (_cut_reason, "no reason"),
        (_in_patch("a reader who", f"{PATH} who"), f"names a path of a machine: {PATH}"),
        (_in_patch("index 0000000000000000", "index 0000"), "export(apply(series))"),
        (_in_patch("\n---\nbase-commit:", "\n---\nother-commit:"), "export(apply(series))"),
        (_in_patch("+tile = 64\n", "+tile = 65\n"), "other contents than its index lines"),
        (_bad_port, "ports/0.33.0/0001-port.patch: no Upstream-Status"),
    ],
    ids=[
        *("extra file", "missing file", "order", "status", "sign-off", "signature", "reason"),
        *("machine path", "short hash", "base line", "edited hunk", "port"),
    ],
)
def test_damage_is_found(applied: Lab, damage: Callable[[Lab], None], words: str) -> None:
    damage(applied)
    assert words in applied.run("lint", code=1)


def test_sizes_by_kind(lab: Lab) -> None:
    rows = {line.split()[0]: line.split()[1:] for line in lab.run("stats").splitlines()}
    names = lab.names()
    assert rows[names[0]] == ["+0", "-0", "+3", "-2", "+0", "-0"]
    assert rows[names[1]] == ["+20", "-0", "+0", "-0", "+1", "-0"]
    assert rows[names[4]] == ["+1", "-1", "+0", "-1", "+0", "-0"], "the kernel is the series' own"
    assert rows["6"][1:] == ["+21", "-1", "+7", "-7", "+1", "-0"]
