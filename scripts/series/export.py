"""Writes the stack in vllm/ to patches/, the same bytes on every machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from scripts.common import BASE_COMMIT, PATCHES, Failure, git, say, series_names, warn
from scripts.series import base, compare, patchfile
from scripts.series import tree as trees
from scripts.series.lock import locked

# Whatever git could take from a configuration, a terminal or its version is set here.
_FORMAT = (
    *("--no-stat", "--patch", "--full-index", "--binary", "--zero-commit", "--no-signature"),
    *("--no-numbered", "--subject-prefix=PATCH", "--start-number=1", "--suffix=.patch"),
    *("--filename-max-length=64", "--no-attach", "--no-thread", "--no-cover-letter"),
    *("--no-to", "--no-cc", "--no-add-header", "--no-from", "--no-notes", "--no-base"),
    *("--encode-email-headers", "--diff-algorithm=myers", "--indent-heuristic", "--unified=3"),
    *("--inter-hunk-context=0", "--find-renames=50%", "-l1000", "--no-color", "--no-ext-diff"),
    *("--no-textconv", "--no-relative", "--src-prefix=a/", "--dst-prefix=b/", f"-O{os.devnull}"),
)
_SETTINGS = (
    *("-c", "format.signOff=false", "-c", "diff.suppressBlankEmpty=false"),
    *("-c", "i18n.logOutputEncoding=UTF-8", "-c", "diff.renames=true"),
)
_BASE_LINE = f"---\nbase-commit: {BASE_COMMIT}\n\n".encode()
_DIFF = b"\ndiff --git "


def render(tree: Path, start: str) -> dict[str, bytes]:
    """File name to content of each commit in start..HEAD, in order."""
    with tempfile.TemporaryDirectory() as scratch:
        options = (*_FORMAT, "--output-directory", scratch)
        git(*_SETTINGS, "format-patch", "--quiet", *options, f"{start}..HEAD", cwd=tree)
        return {
            file.name: _with_base(file.name, file.read_bytes())
            for file in sorted(Path(scratch).iterdir())
        }


def _with_base(name: str, content: bytes) -> bytes:
    """The patch with the true base named between message and diff, where git am skips it."""
    message, separator, diff = content.partition(_DIFF)
    if not separator:
        raise Failure(f"{name}: the commit changes no file; drop it (git -C vllm rebase -i base)")
    return message.rstrip(b"\n") + b"\n" + _BASE_LINE + separator[1:] + diff


def export(*, drop: bool = False) -> None:
    """Write the stack to patches/ and patches/series. patches/ports/ is left alone.

    Raises Failure if patches would vanish that the stack does not have, unless drop.
    """
    tree = base.require()
    with locked("export"):
        start = trees.base_of(tree)
        trees.stack(tree, start)
        rendered = render(tree, start)
        _require_readable(tree, rendered)
        old = series_names()
        gone = [name for name in old if name not in rendered]
        _require_kept(gone, rendered, drop=drop)
        PATCHES.mkdir(exist_ok=True)
        written = sum(_write(PATCHES / name, content) for name, content in rendered.items())
        _write_series(list(rendered))
        for name in gone:
            (PATCHES / name).unlink(missing_ok=True)
    say(f"{len(rendered)} patches: {written} written, {len(rendered) - written} unchanged")
    if gone:
        say(f"removed: {', '.join(gone)}")
    edited = trees.dirty(tree)
    if edited:
        warn(f"uncommitted changes are not part of a patch:\n{trees.listed(edited)}")


def _require_readable(tree: Path, rendered: dict[str, bytes]) -> None:
    """Raise Failure if git am would read another message than the commit has."""
    with tempfile.TemporaryDirectory() as scratch:
        commits = trees.stack(tree, trees.base_of(tree))
        for commit, (name, content) in zip(commits, rendered.items(), strict=True):
            file = Path(scratch) / name
            file.write_bytes(content)
            if patchfile.text(file) != compare.commit_text(tree, commit):
                raise Failure(
                    f"{name}: git am would cut or change this commit's message; a line that is "
                    "only ---, or starts with 'diff -' or 'From ', ends a message: reword it "
                    "(git -C vllm rebase -i base)"
                )


def _require_kept(gone: list[str], rendered: dict[str, bytes], *, drop: bool) -> None:
    """Raise Failure if patches would go whose slug, whatever its number, the stack lacks."""
    slugs = {_slug(name) for name in rendered}
    lost = [name for name in gone if _slug(name) not in slugs and (PATCHES / name).exists()]
    if lost and not drop:
        raise Failure(
            f"the stack in vllm/ does not have these patches:\n{trees.listed(lost)}\n"
            "make apply brings back what is not applied; if they are dropped or their subject "
            "has changed: python3 -m scripts.series export --drop"
        )


def _slug(name: str) -> str:
    return name.partition("-")[2]


def _write(path: Path, content: bytes) -> bool:
    """Write a file whole or not at all; False if it has that content already."""
    if path.exists() and path.read_bytes() == content:
        return False
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    part.replace(path)
    return True


def _write_series(names: list[str]) -> None:
    _write(PATCHES / "series", "".join(f"{name}\n" for name in names).encode())
