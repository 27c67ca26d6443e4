"""Puts one version of the kernels' files into the working tree of vllm/, and tells which is in.

Nothing but content is trusted: each file's hash is held against the git objects that it may be.
So a swap that was killed half way is seen as such, and finishing or undoing it is the same act as
doing it. A file that is neither version holds somebody's work and is never overwritten.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.ab.kernels import Blob, Content, Kernel, is_module
from scripts.common import VLLM, WORK, Failure, git, run_git
from scripts.series.tree import listed

NEW = "new"
SCRATCH = WORK / "ab"


@dataclass(frozen=True)
class State:
    """What the working tree holds.

    inside: the versions it equals, "new" or the kernels whose old files are in (none: a swap was
    interrupted, or there are modifications); modified: files that are no known version;
    old: files that hold a version other than the stack's.
    """

    inside: tuple[str, ...]
    modified: tuple[str, ...]
    old: tuple[str, ...]


class Swapper:
    """The versions of all kernels' files, each a content of the same set of paths."""

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self.kernels = kernels
        new: dict[str, Blob | None] = {}
        for kernel in kernels.values():
            new.update(kernel.new)
        self.versions: dict[str, Content] = {NEW: new}
        for name, kernel in kernels.items():
            self.versions[name] = {**new, **kernel.old}

    def state(self) -> State:
        """Hash the files and say which version they are."""
        found = {path: blob_id(VLLM / path) for path in self.versions[NEW]}
        inside, modified, old = [], [], []
        for name, content in self.versions.items():
            if all(found[path] == object_id(blob) for path, blob in content.items()):
                inside.append(name)
        for path, now in found.items():
            known = {object_id(content[path]) for content in self.versions.values()}
            if now not in known:
                modified.append(path)
            elif now != object_id(self.versions[NEW][path]):
                old.append(path)
        # A patch may name several kernels; where old equals new there is nothing to call old.
        if NEW in inside:
            inside = [NEW]
        return State(tuple(inside), tuple(sorted(modified)), tuple(sorted(old)))

    def put(self, name: str) -> int:
        """Make the files this version; returns how many changed. Refuses before the first write.

        Raises Failure, with nothing changed, if a file holds modifications.
        """
        modified = self.state().modified
        if modified:
            raise Failure(
                "these files in vllm/ hold modifications of yours, which a swap would overwrite:\n"
                f"{listed(list(modified))}\n"
                "commit them (then make export), or copy them away and put the stack's back "
                f"(git -C vllm checkout -- {modified[0]}; a file of your own: move it away)"
            )
        SCRATCH.mkdir(parents=True, exist_ok=True)
        changed = 0
        for path, blob in sorted(self.versions[name].items()):
            # Before: no moment at which the new file meets the bytecode of the other version.
            # After: an import may have run in between.
            forget_bytecode(VLLM / path)
            if blob_id(VLLM / path) != object_id(blob):
                write(VLLM / path, blob)
                changed += 1
            forget_bytecode(VLLM / path)
            if blob is None:
                remove_empty_folders(VLLM / path)
        return changed

    def cache_key(self, name: str) -> str:
        """Names what is compiled from this version: changes with any file of the package."""
        tree = git("rev-parse", "HEAD:vllm").strip()
        swapped = [f"{path} {object_id(blob)}" for path, blob in self.versions[name].items()]
        return hashlib.sha256("\n".join([tree, *sorted(swapped)]).encode()).hexdigest()[:16]


def object_id(blob: Blob | None) -> str | None:
    return blob.id if blob else None


def blob_id(path: Path) -> str | None:
    """The git object id that this file's bytes have; None where there is no file."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        return "a folder"
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def write(path: Path, blob: Blob | None) -> None:
    """Replace or remove a file in one step: a reader sees the old bytes or the new ones."""
    if blob is None:
        path.unlink()
        return
    done = run_git("cat-file", "blob", blob.id)
    if done.returncode:
        raise Failure(
            f"vllm/ lacks the git object {blob.id} ({path.name}): git -C vllm fsck tells what is "
            "broken"
        )
    # Outside of the tree, so that a killed swap leaves no stray file in it.
    fresh = SCRATCH / "incoming"
    fresh.write_bytes(done.stdout)
    fresh.chmod(0o755 if blob.mode == "100755" else 0o644)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(fresh, path)


def forget_bytecode(path: Path) -> None:
    """Remove the module's compiled forms, of any Python version and optimisation level."""
    if is_module(os.fspath(path)):
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink(missing_ok=True)


def remove_empty_folders(path: Path) -> None:
    """Remove the folders that a vanished file leaves empty.

    One that stays would still be importable, as a namespace package.
    """
    for folder in (path.parent / "__pycache__", *path.parents):
        if folder == VLLM:
            return
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            # Not empty: neither is any folder above it, save for the bytecode's own.
            if folder.name != "__pycache__":
                return


@contextmanager
def lock() -> Iterator[None]:
    """Keep two swaps from running at once. The lock dies with its process."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with (SCRATCH / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(
                "another A/B command is at work on vllm/: wait for it, or end it (Ctrl-C)"
            ) from None
        yield
