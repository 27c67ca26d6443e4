"""The README's figures: templates over JSON, rendered between markers.

readme.toml holds the text. A figure is a placeholder that names a value of a result, so it can
neither be mistyped nor outlive its file; a bare number in the text is refused, unless it is a
setting (12 GiB, 8 x 12K, six tokens at 128K).
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from scripts.common import ROOT, Failure
from scripts.report.load import Result

README = ROOT / "README.md"
FILE = Path(__file__).with_name("readme.toml")

_PLACEHOLDER = re.compile(r"\{(\w+)(?::[^{}]*)?\}")
# A number that stands alone: not a part of BF16, 128K, Qwen3.6-27B or 0003.
_NUMBER = re.compile(r"(?<![\w.,+-])[+-]?\d+(?:[.,]\d+)*(?![\w-])(?!\.\d)(?! (?:GiB|×|layers\b))")


def render(results: list[Result], file: Path = FILE) -> dict[str, str]:
    """The text between each pair of markers. Raises Failure for a figure without JSON behind it."""
    with file.open("rb") as stream:
        data = tomllib.load(stream)
    found = {one.shown: one for one in results}
    texts = {name: _text(name, entry, found) for name, entry in data.get("text", {}).items()}
    if "patch" in data:
        lines = ["| patch | what it gives | figures |", "| --- | --- | --- |"]
        for row in data["patch"]:
            head = f"{row['number']} {row['name']}"
            lines.append(f"| {head} | {row['gives']} | {_text(head, row, found)} |")
        texts["patches"] = "\n".join(lines)
    return texts


def put(page: str, texts: dict[str, str]) -> str:
    """The page with each text between its markers. Raises Failure if a marker is missing."""
    for name, text in texts.items():
        start, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
        before, found, rest = page.partition(start)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise Failure(
                f"README.md has no markers <!-- {name} --> and <!-- /{name} -->: put them"
            )
        page = before + start + text + end + after
    return page


def _text(head: str, entry: dict[str, Any], found: dict[str, Result]) -> str:
    text = entry["figures"]
    bare = _NUMBER.findall(_PLACEHOLDER.sub("", re.sub(r"\]\([^)]*\)", "", text)))
    if bare:
        raise Failure(
            f"{FILE.name}, {head}: the figure {bare[0]} has no JSON behind it\n"
            "put a placeholder there and name its value under `values`"
        )
    values = {name: _value(head, where, found) for name, where in entry.get("values", {}).items()}
    try:
        return text.format(**values)
    except (KeyError, ValueError) as wrong:
        raise Failure(f"{FILE.name}, {head}: no usable value for {wrong}") from None


def _value(head: str, where: list[str], found: dict[str, Result]) -> Any:
    """The number at [file, key, key, ...], of a list its sum; a key may count into a list."""
    file, *keys = where
    if file not in found:
        raise Failure(
            f"{FILE.name}, {head}: no JSON behind a figure: results/{file} is missing\n"
            "measure it, or take the figure out"
        )
    value: Any = found[file].data
    for key in keys:
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, TypeError, ValueError):
            raise Failure(
                f"{FILE.name}, {head}: results/{file} has no {'/'.join(keys)} (at {key})"
            ) from None
    if isinstance(value, list) and all(isinstance(one, int | float) for one in value):
        return sum(value)
    if not isinstance(value, int | float):
        raise Failure(f"{FILE.name}, {head}: results/{file} {'/'.join(keys)} is no number")
    return value


def links(text: str) -> list[str]:
    """The files that a text links to, below the repository."""
    return [link for link in re.findall(r"\]\(([^)#:]+)\)", text) if not link.startswith("http")]


def require_links(text: str) -> None:
    """Raise Failure if a linked file is missing."""
    missing = [link for link in links(text) if not (ROOT / link).exists()]
    if missing:
        raise Failure(f"README.md links to what is not there: {', '.join(missing)}")
