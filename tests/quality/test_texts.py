"""The pinned texts: what they are made of, and every refusal of what isn't as pinned."""

import bz2
import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.common import Failure
from scripts.quality import texts

CHAT = b"""conversations:
- - Hello
  - Hi there!
- - Hello
  - Hi there!
- - How are you?
  - Fine.
"""
ARTICLE = """'''Aardvark''' is an [[animal]].<ref>A book, p. 3</ref>

{| class="wikitable"
| a table
|}
[[File:Aardvark.jpg|thumb|A picture]]
== Food ==
It eats {{convert|1|kg}} of ants.

== References ==
{{reflist}}
Not prose.
"""
DUMP = f"""<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">
<page><title>Other</title><revision><text>Not asked for.</text></revision></page>
<page><title>Aardvark</title><revision><text>{ARTICLE.replace("<", "&lt;")}</text></revision></page>
</mediawiki>"""


def package(folder: Path, files: dict[str, bytes]) -> tuple[Path, str]:
    """A source distribution in the place where a download would be, and its sha256."""
    path = folder / "lab==1.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(f"lab-1/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> texts.Source:
    """A pinned text of two files, its package downloaded already."""
    monkeypatch.setattr(texts, "TEXTS", tmp_path)
    _, sdist = package(tmp_path, {"a.txt": b"one\r\ntwo\n", "b.txt": b"\nthree\n"})
    text = b"one\ntwo\n\n\nthree\n"
    sha256 = hashlib.sha256(text).hexdigest()
    members = ("a.txt", "b.txt")
    return texts.Source("prose", "lab", "lab==1", sdist, "plain", members, "none", sha256)


def test_a_text_is_made_once_and_its_package_dropped(lab: texts.Source, tmp_path: Path) -> None:
    assert texts.ensure(lab) == "one\ntwo\n\n\nthree\n"
    assert [file.name for file in tmp_path.iterdir()] == [lab.path.name]
    assert texts.ensure(lab) == "one\ntwo\n\n\nthree\n"


def test_another_package_is_refused_and_removed(lab: texts.Source, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="not the file that was pinned"):
        texts.ensure(replace(lab, sdist="0" * 64))
    assert list(tmp_path.iterdir()) == []


def test_another_text_is_refused_and_not_kept(lab: texts.Source) -> None:
    other = replace(lab, sha256="1" * 64)
    with pytest.raises(Failure, match="not the pinned 1{64}"):
        texts.ensure(other)
    assert not other.path.exists()


def test_a_changed_text_in_the_cache_is_refused_and_removed(lab: texts.Source) -> None:
    texts.ensure(lab)
    lab.path.write_text("something else")
    with pytest.raises(Failure, match="was changed"):
        texts.ensure(lab)
    assert not lab.path.exists()


def test_repeated_conversations_are_left_out(lab: texts.Source, tmp_path: Path) -> None:
    path, _ = package(tmp_path, {"c.yml": CHAT})
    made = texts.READERS["chat"](replace(lab, members=("c.yml",)), path)
    assert made == "Hello\nHi there!\n\nHow are you?\nFine.\n"


def test_an_article_keeps_its_prose_alone(lab: texts.Source, tmp_path: Path) -> None:
    path, _ = package(tmp_path, {"dump.bz2": bz2.compress(DUMP.encode())})
    source = replace(lab, members=("dump.bz2",), articles=("Aardvark",))
    made = texts.READERS["wikipedia"](source, path)
    assert made == "Aardvark\n\nAardvark is an animal.\n\nFood\nIt eats  of ants.\n".replace(
        "  ", " "
    )
    with pytest.raises(Failure, match="no article Zebra"):
        texts.READERS["wikipedia"](replace(source, articles=("Aardvark", "Zebra")), path)


def test_what_is_pinned_covers_three_kinds() -> None:
    pinned = texts.sources()
    assert {source.kind for source in pinned} == {"prose", "code", "dialogue"}
    for source in pinned:
        assert len(source.sha256) == len(source.sdist) == 64
        assert "==" in source.package and source.licence and source.reader in texts.READERS


def test_windows_are_whole_and_consecutive() -> None:
    tokens = list(range(25))
    assert texts.windows(tokens, 4, total=10) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(texts.windows(tokens, 4, total=100)) == 6
