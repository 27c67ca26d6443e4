"""Checks patches/: complete, explained, signed, and reproducible byte by byte."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from scripts.common import (
    BASE_COMMIT,
    PATCHES,
    ROOT,
    WORK,
    Failure,
    git,
    say,
    series,
    series_names,
)
from scripts.series import apply, export, patchfile, scratch

_NAME = re.compile(r"\d{4}-[\w.+-]+\.patch")
_TRAILER = re.compile(r"^(Upstream-Status|Signed-off-by): (\S.*)$", re.MULTILINE)
_SIGNATURE = re.compile(r"[^<>]+ <[^<>@\s]+@[^<>@\s]+>")
_MACHINE_PATH = re.compile(r"(?<![\w./])/(?:home|root|Users|work|mnt|workspace)/[\w./-]+")
# A reason says more than the subject: below this many words it is none.
_REASON_WORDS = 20


def report() -> int:
    """Print what is wrong with patches/; 1 if anything is."""
    found = problems()
    for problem in found:
        print(problem)
    count = len(series_names())
    print(f"{len(found)} problems in patches/" if found else f"patches/ is sound: {count} patches")
    return 1 if found else 0


def problems() -> list[str]:
    """What is wrong with patches/, one sentence each."""
    found = _pin_problems() + _set_problems()
    for patch in sorted(PATCHES.rglob("*.patch")):
        found += patch_problems(patch)
    return found or _round_trip_problems()


def _pin_problems() -> list[str]:
    """The submodule's commit is the base: `git add --all` would record the stack's top instead."""
    entry = git("ls-files", "--stage", "--", "vllm", cwd=ROOT, check=False).split()
    if entry[:1] != ["160000"] or entry[1] == BASE_COMMIT:
        return []
    return [
        f"vllm: the submodule is recorded at {entry[1][:12]}, not at the base: git update-index "
        f"--cacheinfo 160000,{BASE_COMMIT},vllm"
    ]


def _set_problems() -> list[str]:
    """Series and folder name the same files, each once, in the order of their numbers."""
    names = series_names()
    folder = {path.name for path in PATCHES.iterdir()} - {"series", "ports"}
    found = [f"series: {name} is not in patches/" for name in names if name not in folder]
    found += [f"{name}: not in patches/series" for name in sorted(folder - set(names))]
    found += [f"series: {name} is listed twice" for name in set(names) if names.count(name) > 1]
    found += [f"{name}: not named NNNN-slug.patch" for name in names if not _NAME.fullmatch(name)]
    numbers = [name[:4] for name in names]
    if numbers != [f"{number:04}" for number in range(1, len(names) + 1)]:
        found.append("series: the numbers are not 0001, 0002, ... in this order: make export")
    return found


def patch_problems(patch: Path) -> list[str]:
    """What is missing in one patch: words, trailers, full hashes, or what must not be in it."""
    name = patch.relative_to(PATCHES).as_posix()
    subject, _, body = patchfile.text(patch).message.partition("\n\n")
    found = []
    if not subject.strip():
        found.append("no subject")
    trailers = dict(_TRAILER.findall(body))
    reason = _TRAILER.sub("", body)
    if len(reason.split()) < _REASON_WORDS:
        found.append(f"no reason: the message has fewer than {_REASON_WORDS} words")
    for trailer in ("Upstream-Status", "Signed-off-by"):
        if trailer not in trailers:
            found.append(f"no {trailer}: line in the message")
    signature = trailers.get("Signed-off-by")
    if signature and not _SIGNATURE.fullmatch(signature):
        found.append(f"Signed-off-by is not NAME <ADDRESS>: {signature}")
    files = patchfile.files(patch)
    if not files:
        found.append("changes no file")
    for file in files:
        if file.hunks and len(file.new_blob) != patchfile.FULL_HASH:
            found.append(f"{file.path}: no full hash in its index line: make export")
    paths = set(_MACHINE_PATH.findall(_own_words(patch)))
    found += [f"names a path of a machine: {path}" for path in sorted(paths)]
    return [f"{name}: {problem}" for problem in found]


def _own_words(patch: Path) -> str:
    """The message and the added lines: what surrounds them is upstream's."""
    content = patch.read_text(encoding="utf-8", errors="replace")
    message, _, diff = content.partition("\ndiff --git ")
    return "\n".join([message, *(line for line in diff.splitlines() if line.startswith("+"))])


def _round_trip_problems() -> list[str]:
    """Apply the series to the base in a scratch tree and export it: the same bytes."""
    tree = WORK / "lint"
    patches = series()
    say(f"applying {len(patches)} patches in a scratch tree")
    start = scratch.clone(tree)
    try:
        git("reset", "--quiet", "--hard", start, cwd=tree)
        for patch in patches:
            apply.apply_patch(tree, patch)
        rendered = export.render(tree, start)
    except Failure as failure:
        return [str(failure)]
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    files = {patch.name: patch.read_bytes() for patch in patches}
    found = [
        f"{name}: export(apply(series)) gives other bytes: make apply, make export"
        for name in files
        if name in rendered and rendered[name] != files[name]
    ]
    found += [f"{name}: export would name this patch otherwise" for name in files.keys() - rendered]
    return found
