"""Which files a kernel name stands for, read from the commits of the stack in vllm/.

A patch names its kernels in its message, one trailer each: `Kernel: int8_decode`. The files are
those that the patch touches in the package vllm/vllm/; its tests and docs stay. "Old" is the
content of those files just before the patch, so with the patch's own hooks gone the stock path
runs.

Later patches: one that touches any of these files, or that imports a module which vanishes with
them, is taken off as well, with all its files in the package, and so on until nothing more
follows. So no patch is ever half in: the old tree is the stack without a set of patches, never a
mix of two versions of one. What was taken off along with the kernel's patch is always printed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

from scripts.common import VLLM, Failure, git
from scripts.series.compare import changes
from scripts.series.tree import base_of, stack, subject

PACKAGE = "vllm/"


@dataclass(frozen=True)
class Blob:
    """One version of a file: its git object and its mode (100644 or 100755)."""

    id: str
    mode: str


# Path below vllm/ -> its version; None where the file doesn't exist.
Content = Mapping[str, Blob | None]


@dataclass(frozen=True)
class Patch:
    """One commit of the stack; files are those in the package, kernels those of its trailers."""

    commit: str
    subject: str
    kernels: tuple[str, ...]
    files: frozenset[str]


@dataclass(frozen=True)
class Kernel:
    """A kernel's old and new content, over the files of every patch that comes off with it.

    patches holds the subjects of those patches, the kernel's own first.
    """

    name: str
    patches: tuple[str, ...]
    old: Content
    new: Content


def read_stack() -> list[Patch]:
    """The patches applied in vllm/, oldest first. Raises Failure if that is no patched base."""
    patches = []
    for commit in stack(VLLM, base_of(VLLM)):
        names = git("show", "-s", "--format=%(trailers:key=Kernel,valueonly)", commit).split()
        files = frozenset(path for path in changes(VLLM, commit) if path.startswith(PACKAGE))
        patches.append(Patch(commit, subject(VLLM, commit), tuple(names), files))
    return patches


def kernels() -> dict[str, Kernel]:
    """Every kernel that the stack names. Raises Failure if two patches share a name."""
    patches = read_stack()
    found: dict[str, Kernel] = {}
    for position, patch in enumerate(patches):
        for name in patch.kernels:
            if name in found:
                raise Failure(
                    f"two patches have the trailer `Kernel: {name}`:\n"
                    f"  {found[name].patches[0]}\n  {patch.subject}\nrename one of them"
                )
            found[name] = _kernel(name, patches, position)
    return found


def contents(revision: str, files: Iterable[str]) -> Content:
    """The versions of these files at a revision of vllm/."""
    listed = git("ls-tree", "-r", "-z", revision, "--", *files).split("\0")[:-1]
    result: dict[str, Blob | None] = dict.fromkeys(files)
    for entry in listed:
        meta, path = entry.split("\t")
        mode, _, blob = meta.split()
        result[path] = Blob(blob, mode)
    return result


def _kernel(name: str, patches: list[Patch], position: int) -> Kernel:
    """Take off the patch at position and all that hang on it (see the head of this file)."""
    own = patches[position]
    if not own.files:
        raise Failure(
            f"the patch `{own.subject}` names the kernel {name} but touches no file in "
            f"{PACKAGE}: drop its Kernel trailer"
        )
    off, files = {position}, set(own.files)
    grown = True
    while grown:
        old = contents(f"{own.commit}^", files)
        gone = {module_name(path) for path in files if old[path] is None and is_module(path)}
        more = {
            later
            for later in range(position + 1, len(patches))
            if later not in off and (patches[later].files & files or _needs(patches[later], gone))
        }
        grown = bool(more)
        off |= more
        files.update(*(patches[later].files for later in more))
    subjects = tuple(patches[index].subject for index in sorted(off))
    return Kernel(name, subjects, old, contents("HEAD", files))


def _needs(patch: Patch, gone: set[str]) -> bool:
    return any(
        reference == module or reference.startswith(module + ".")
        for path in patch.files
        if is_module(path)
        for reference in references(path)
        for module in gone
    )


def is_module(path: str) -> bool:
    return path.endswith(".py")


def module_name(path: str) -> str:
    """vllm/a/b.py -> vllm.a.b; vllm/a/__init__.py -> vllm.a"""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def references(path: str) -> frozenset[str]:
    """The modules that a file of the whole stack names: its imports, and dotted strings.

    vLLM's registries name classes by strings such as "vllm.v1.attention.backends.x.Backend".
    """
    if contents("HEAD", [path])[path] is None:
        return frozenset()
    package = PurePosixPath(path).parent.parts
    return frozenset(_references(ast.parse(git("show", f"HEAD:{path}")), package))


def _references(tree: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join((*above, *filter(None, [node.module])))
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
