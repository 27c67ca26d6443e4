"""What moved under the series between its base and another release, by file and function.

For each hunk in a file that the base has: the function around it, in the base and in the release.

same       its text is what it was
changed    it has another text: read the hunk against it
moved      it is defined in another file, or below another class
vanished   no file of the release defines it

Other files than Python's, and lines outside of any function, are told by the file.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.common import WORK, git, run_git
from scripts.series import apply, scratch

SAME, CHANGED, MOVED, VANISHED = "same", "changed", "moved", "vanished"
_LINES = re.compile(r"^@@ -(\d+)(?:,(\d+))? ", re.MULTILINE)
# A name that many files define says nothing of where it went.
_MOST_PLACES = 3
Definitions = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Drift:
    """What became of one function (of a file itself: "") that a patch changes."""

    patch: str
    file: str
    function: str
    state: str
    note: str = ""


def drift(patches: list[Path], release: Path, commit: str) -> list[Drift]:
    """The drift of what the patches touch, against a release's commit in the tree `release`.

    Raises Failure if vllm/ has no base or a patch doesn't apply to it.
    """
    tree = WORK / "drift"
    base = before = scratch.clone(tree)
    git("reset", "--quiet", "--hard", base, cwd=tree)
    found: dict[tuple[str, str, str], Drift] = {}
    for patch in patches:
        apply.apply_patch(tree, patch)
        after = git("rev-parse", "HEAD", cwd=tree).strip()
        for file, function in _touched(tree, base, before, after):
            one = _compare(tree, base, release, commit, file, function)
            found[patch.name, file, function] = Drift(patch.name, file, function, *one)
        before = after
    return list(found.values())


def _touched(tree: Path, base: str, before: str, after: str) -> Iterator[tuple[str, str]]:
    """Each file of the base that a commit changes, with the functions of the base in question."""
    for file in git("diff", "--name-only", "--no-renames", before, after, cwd=tree).splitlines():
        text = _text(tree, base, file)
        if text is None:
            continue
        old = _text(tree, before, file) or ""
        known, there = definitions(file, text), definitions(file, old)
        hunks = git("diff", "--no-renames", "-U0", before, after, "--", file, cwd=tree)
        names = set()
        for start, count in _LINES.findall(hunks):
            name = _around(there, int(start), int(count or 1))
            # What an earlier patch has added is not upstream's: its nearest owner is.
            while name and name not in known:
                name = name.rpartition(".")[0]
            names.add(name)
        for name in sorted(names):
            yield file, name


def _text(tree: Path, commit: str, file: str) -> str | None:
    shown = run_git("show", f"{commit}:{file}", cwd=tree)
    return shown.stdout.decode(errors="replace") if shown.returncode == 0 else None


def definitions(file: str, text: str) -> Definitions:
    """First and last line of each function and class, decorators included, by qualified name."""
    found: Definitions = {}
    if not file.endswith(".py"):
        return found
    try:
        module = ast.parse(text)
    except SyntaxError:
        return found

    def visit(node: ast.AST, owner: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = owner
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{owner}.{child.name}" if owner else child.name
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                found.setdefault(name, (first, child.end_lineno or first))
            visit(child, name)

    visit(module, "")
    return found


def _around(there: Definitions, start: int, count: int) -> str:
    """The innermost definition around lines; of an insertion (no lines), around its neighbours."""
    first, last = (start, start + count - 1) if count else (start, start + 1)
    inside = [name for name, (top, end) in there.items() if top <= first and last <= end]
    return max(inside, key=lambda name: there[name][0], default="")


def _compare(
    tree: Path, base: str, release: Path, commit: str, file: str, function: str
) -> tuple[str, str]:
    old = _text(tree, base, file) or ""
    new = _text(release, commit, file)
    if not function:
        if new is None:
            return VANISHED, "the file"
        return (SAME, "") if new == old else (CHANGED, "the file, outside of the functions named")
    was = _body(old, definitions(file, old)[function])
    known = definitions(file, new) if new is not None else {}
    if new is not None and function in known:
        now = _body(new, known[function])
        return (SAME, "") if now == was else (CHANGED, _amount(was, now))
    places = _places(release, commit, function)
    if not places or len(places) > _MOST_PLACES:
        return VANISHED, "" if new is not None else "with its file"
    notes = []
    for place, now in places.items():
        notes.append(f"{place}, {'as it was' if now == was else _amount(was, now)}")
    return MOVED, "to " + "; ".join(notes)


def _body(text: str, lines: tuple[int, int]) -> str:
    first, last = lines
    return "\n".join(text.splitlines()[first - 1 : last])


def _amount(was: str, now: str) -> str:
    lines = list(difflib.unified_diff(was.splitlines(), now.splitlines(), n=0, lineterm=""))[2:]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return f"+{added} -{removed} lines"


def _places(release: Path, commit: str, function: str) -> dict[str, str]:
    """Where the release defines it (FILE, or FILE:OTHER.NAME of a function), with the text."""
    name = function.rpartition(".")[2]
    pattern = rf"^\s*(async def|def|class) {re.escape(name)}\b"
    listed = git(
        *("grep", "-l", "-E", pattern, commit, "--", "*.py"), cwd=release, check=False
    ).splitlines()
    alike, other = {}, {}
    for file in (entry.partition(":")[2] for entry in listed):
        text = _text(release, commit, file) or ""
        for known, lines in definitions(file, text).items():
            if known == function:
                alike[file] = _body(text, lines)
            # A method is looked for in a class of its own name only.
            elif "." not in function and known.rpartition(".")[2] == name:
                other[f"{file}:{known}"] = _body(text, lines)
    return alike or other
