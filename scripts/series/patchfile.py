"""Reads a patch file: its files, hunks and promised contents, its message, why it fails."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path

from scripts.common import Failure, git, run_git

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_INDEX = re.compile(r"index ([0-9a-f]+)\.\.([0-9a-f]+)(?: (\d+))?")
_FAILED = re.compile(r"error: patch failed: (.*):(\d+)")
_REFUSED = re.compile(r"error: (?!patch failed: )(?!while searching for:)(.*)")
_TEST = re.compile(r"tests/(?:.*/)?test_\w+\.py")
FULL_HASH = 40


@dataclass
class Hunk:
    """One hunk: its @@ line, the old line it starts at, and the lines it adds and removes."""

    header: str
    old_start: int
    added: int = 0
    removed: int = 0


@dataclass
class FilePatch:
    """What a patch does to one file. A path is None where the file does not exist."""

    old: str | None
    new: str | None
    old_blob: str = ""
    new_blob: str = ""
    mode: str = ""
    binary: bool = False
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The path to name the file by."""
        return self.new or self.old or ""

    @property
    def added(self) -> int:
        """Lines added."""
        return sum(hunk.added for hunk in self.hunks)

    @property
    def removed(self) -> int:
        """Lines removed."""
        return sum(hunk.removed for hunk in self.hunks)


@dataclass(frozen=True)
class Promise:
    """A file's mode and blob hash after a patch; "" where they stay those of `source`."""

    mode: str
    blob: str
    source: str


@dataclass(frozen=True)
class Text:
    """A commit's words: who, when and the message, without trailing blanks."""

    author: str
    date: str  # seconds since 1970; the header itself if it is no date
    message: str


def files(patch: Path) -> list[FilePatch]:
    """The files that a patch touches, in its order."""
    found: list[FilePatch] = []
    old_left = new_left = 0
    for line in patch.read_bytes().decode(errors="surrogateescape").split("\n"):
        if old_left > 0 or new_left > 0:
            hunk = found[-1].hunks[-1]
            hunk.added += line.startswith("+")
            hunk.removed += line.startswith("-")
            old_left -= not line.startswith(("+", "\\"))
            new_left -= not line.startswith(("-", "\\"))
        elif line.startswith("diff --git "):
            old, new = _names(line, patch)
            found.append(FilePatch(old, new))
        elif found:
            hunk_line = _HUNK.match(line)
            if hunk_line:
                start, old_count, _, new_count = hunk_line.groups(default="1")
                old_left, new_left = int(old_count), int(new_count)
                found[-1].hunks.append(Hunk(line, int(start)))
            else:
                _header(found[-1], line)
    return found


def carried_tests(patch: Path) -> list[str]:
    """The test files that a patch adds or changes."""
    paths = {file.new for file in files(patch) if file.new}
    return sorted(path for path in paths if _TEST.fullmatch(path))


def _names(line: str, patch: Path) -> tuple[str, str]:
    names = line.removeprefix("diff --git ")
    if '"' in names:
        raise Failure(f"{patch.name}: a path with quotes or control characters: {names}")
    # Both names have the same length unless the file is renamed, when its own lines follow.
    middle = len(names) // 2
    return names[2:middle], names[middle + 3 :]


def _header(file: FilePatch, line: str) -> None:
    word, _, rest = line.rpartition(" ")
    match word:
        case "new file mode":
            file.old, file.mode = None, rest
        case "deleted file mode":
            file.new = None
        case "new mode":
            file.mode = rest
    if line.startswith("rename from "):
        file.old = line.removeprefix("rename from ")
    elif line.startswith("rename to "):
        file.new = line.removeprefix("rename to ")
    elif line == "GIT binary patch":
        file.binary = True
    elif found := _INDEX.fullmatch(line):
        file.old_blob, file.new_blob = found[1], found[2]
        file.mode = file.mode or found[3] or ""


def promised(patch: Path) -> dict[str, Promise | None]:
    """Per path what the patch says of the file afterwards; None: deleted."""
    result: dict[str, Promise | None] = {}
    for file in files(patch):
        if file.old is not None and file.old != file.new:
            result.setdefault(file.old, None)
        if file.new is not None:
            result[file.new] = Promise(file.mode, file.new_blob, file.old or file.new)
    return result


def text(patch: Path) -> Text:
    """The author, date and message that git am takes from the patch."""
    with tempfile.TemporaryDirectory() as scratch:
        message = Path(scratch) / "message"
        headers = git(
            *("mailinfo", "-b", "--encoding=UTF-8", "--no-scissors"),
            *(message, Path(scratch) / "diff"),
            cwd=Path(scratch),
            input=patch.read_bytes().decode(errors="replace"),
        )
        body = message.read_text(encoding="utf-8", errors="replace")
    fields = dict(line.split(": ", 1) for line in headers.splitlines() if ": " in line)
    author = f"{fields.get('Author', '')} <{fields.get('Email', '')}>"
    return Text(
        author, _timestamp(fields.get("Date", "")), tidy(f"{fields.get('Subject', '')}\n\n{body}")
    )


def _timestamp(date: str) -> str:
    try:
        return str(int(parsedate_to_datetime(date).timestamp()))
    except ValueError:
        return date


def tidy(message: str) -> str:
    """The message as git am stores it: no trailing blanks, no double or outer blank lines."""
    lines = "\n".join(line.rstrip() for line in message.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip()


def why_it_fails(patch: Path, tree: Path) -> str:
    """The files and hunks of the patch that do not apply to the tree, one a line."""
    done = run_git("apply", "--check", "--index", patch, cwd=tree)
    errors = done.stderr.decode(errors="replace").splitlines()
    by_path = {file.path: file for file in files(patch)} | {
        file.old: file for file in files(patch) if file.old
    }
    reasons = []
    failed = set()
    for line in errors:
        if found := _FAILED.match(line):
            path, start = found[1], int(found[2])
            failed.add(path)
            reasons.append(f"  {path}: {_hunk(by_path.get(path), start)}")
        elif (found := _REFUSED.match(line)) and found[1].split(":")[0] not in failed:
            reasons.append(f"  {found[1]}")
    return "\n".join(reasons)


def _hunk(file: FilePatch | None, start: int) -> str:
    for number, hunk in enumerate(file.hunks if file else [], 1):
        if hunk.old_start == start and file:
            return f"hunk {number} of {len(file.hunks)} does not apply: {hunk.header}"
    return f"the hunk at line {start} does not apply"
