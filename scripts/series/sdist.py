"""A release's source distribution: fetch it, check it, make a git tree of it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from scripts.common import BASE_COMMIT, BASE_VERSION, CACHE, SDIST_SHA256, SDISTS, Failure, git, say
from scripts.series.tree import BASE_LINE

# Downloads a source distribution as it is; pip would build its metadata, compilers and all.
_TOOL = "unearth==0.19.0"
# The date of every commit made from an sdist: fixed, so that its id is the same everywhere.
_DATE = "2026-10-05T00:00:00+0000"
_PROGRESS_S = 3.0


def pinned_sha256(version: str) -> str | None:
    """The sha256 that a release's sdist must have; None for a release that is not pinned."""
    return SDIST_SHA256 if version == BASE_VERSION else SDISTS.get(version)


def fetch(version: str) -> Path:
    """The release's sdist in the cache, downloaded if it is not there, checked in any case.

    QUANT_KV_SDIST may name a local file to take for the base instead. A file with a wrong
    sha256 is removed from the cache; a download is in the cache only when it is whole.
    """
    local = os.environ.get("QUANT_KV_SDIST")
    wanted = pinned_sha256(version)
    if local and version == BASE_VERSION:
        problem = _problem(Path(local), wanted)
        if problem:
            raise Failure(f"QUANT_KV_SDIST={local}: {problem}; unset it to download the release")
        return Path(local)
    target = CACHE / f"vllm-{version}.tar.gz"
    if not target.exists():
        _download(version, target, wanted)
        return target
    problem = _problem(target, wanted)
    if problem:
        target.unlink()
        raise Failure(
            f"the cached {target.name} is corrupt ({problem}): it has been removed; run the "
            "same command again to download it anew"
        )
    return target


def _problem(file: Path, wanted: str | None) -> str | None:
    if not file.is_file():
        return "no such file"
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    if wanted and digest.hexdigest() != wanted:
        size = file.stat().st_size
        return f"{size:,} bytes with sha256 {digest.hexdigest()}, not {wanted}"
    return None


def _download(version: str, target: Path, wanted: str | None) -> None:
    scratch = CACHE / f"vllm-{version}.part"
    try:
        found = download(
            f"vllm=={version}", scratch, ", or name a local copy with QUANT_KV_SDIST=FILE"
        )
        problem = _problem(found, wanted)
        if problem:
            raise Failure(
                f"the download of vllm {version} is not the release ({problem}): nothing was "
                "kept; run the same command again"
            )
        found.replace(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def download(requirement: str, scratch: Path, remedy: str = "") -> Path:
    """Download the sdist of NAME==VERSION, as it is on the index, into the fresh folder `scratch`.

    Raises Failure with `remedy` behind the general one if the index doesn't give it.
    """
    python = _tool()
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    name = requirement.replace("==", " ")
    say(f"downloading the sdist of {name} from the package index")
    index = [] if not (url := _index_url(python)) else ["--index-url", url]
    command = [*python, "unearth", *index, "--no-binary", "--download", str(scratch)]
    code, output = _watched([*command, "--", requirement], scratch)
    found = list(scratch.glob("*.tar.gz"))
    if code or len(found) != 1:
        raise Failure(
            f"the sdist of {name} could not be downloaded (exit {code}):\n{output}\n"
            f"check the network and pip's index settings{remedy}"
        )
    return found[0]


def _watched(command: list[str], folder: Path) -> tuple[int, str]:
    """Run a command that fills a folder, saying now and then how much is there."""
    log = folder / "output.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
        try:
            while True:
                try:
                    code = process.wait(_PROGRESS_S)
                    break
                except subprocess.TimeoutExpired:
                    size = sum(file.stat().st_size for file in folder.glob("*.tar.gz"))
                    say(f"  {size / 1e6:.0f} MB so far")
        finally:
            process.kill()
    lines = log.read_text(errors="replace").strip().splitlines()
    return code, "\n".join(lines[-5:])


def _tool() -> list[str]:
    """The command prefix `python -m` of a small environment that holds the download tool."""
    environment = CACHE / "tools"
    python = environment / "bin" / "python"
    if not python.exists():
        say(f"installing {_TOOL} into {environment.relative_to(CACHE.parent)}")
        scratch = CACHE / "tools.part"
        shutil.rmtree(scratch, ignore_errors=True)
        for command in (
            [sys.executable, "-m", "venv", str(scratch)],
            [str(scratch / "bin" / "python"), "-m", "pip", "install", "--quiet", _TOOL],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Failure(
                    f"{' '.join(command)} failed:\n{(done.stderr or done.stdout).strip()}\n"
                    "Debian and Ubuntu need the package python3-venv; the package index has to "
                    "answer pip"
                )
        scratch.replace(environment)
    return [str(python), "-m"]


def _index_url(python: list[str]) -> str:
    """The index that pip is told to use, since the download tool does not read pip's settings."""
    command = [*python, "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(command, capture_output=True, text=True, check=False)
    return os.environ.get("PIP_INDEX_URL") or configured.stdout.strip()


def extract(sdist: Path, folder: Path) -> None:
    """Unpack an sdist's single top folder as `folder`, which must not exist."""
    scratch = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    say(f"unpacking {sdist.name}")
    try:
        with tarfile.open(sdist) as archive:
            for member in archive:
                _write(archive, member, scratch)
        tops = list(scratch.iterdir())
        if len(tops) != 1 or not tops[0].is_dir():
            raise Failure(f"{sdist} does not hold one top folder: it is no sdist")
        tops[0].replace(folder)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Failure(f"{sdist} can't be unpacked: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write one member; owners and modes but the executable bit are not taken over.

    Done by hand because tarfile's own safe filter is not in every Python 3.11.
    """
    target = folder / member.name
    if Path(member.name).is_absolute() or ".." in Path(member.name).parts:
        raise Failure(f"{member.name} in the sdist lies outside its folder")
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    source = archive.extractfile(member) if member.isfile() else None
    if source is None:
        raise Failure(f"{member.name} in the sdist is neither a file nor a folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, target.open("wb") as stream:
        shutil.copyfileobj(source, stream)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)


def make_tree(version: str, folder: Path) -> None:
    """Put a release's files as a git tree with one commit at `folder`, which must not exist.

    The commit's id depends on the release alone. For the base its message names the true
    commit (see tree.base_of).
    """
    sdist = fetch(version)
    extract(sdist, folder)
    say(f"committing the files of v{version}")
    started = time.monotonic()
    git("init", "--quiet", "--initial-branch=series", "--template=", cwd=folder)
    # The release's own .gitignore names files that the release holds: --force.
    git("add", "--all", "--force", cwd=folder)
    message = f"vLLM v{version} (sdist)\n"
    if version == BASE_VERSION:
        message += f"\n{BASE_LINE}\nSdist-sha256: {SDIST_SHA256}\n"
    git(
        *("commit", "--quiet", "--no-verify", "--cleanup=verbatim", "--file=-"),
        cwd=folder,
        input=message,
        env={"GIT_AUTHOR_DATE": _DATE, "GIT_COMMITTER_DATE": _DATE},
    )
    if version == BASE_VERSION:
        git("config", "series.baseCommit", BASE_COMMIT, cwd=folder)
    say(f"  {time.monotonic() - started:.0f} s")
