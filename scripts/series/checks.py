"""What is checked of one patch at its place: ruff, mypy, and the tests that it carries.

A verdict's key holds everything it depends on; those that passed are kept under it in
.cache/check-series/, so that nothing is run twice on the same contents.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from scripts.common import CACHE, Failure, git
from scripts.series import patchfile
from scripts.series.linters import Tools, tools

RUFF, MYPY, TESTS = "ruff", "mypy", "tests"
_VERDICTS = CACHE / "check-series"
_CODE = Path(__file__).resolve().parents[2]
_RUNNER = _CODE / "tests" / "upstream" / "release.py"
_ERROR = re.compile(r"^([^:\n]+):(\d+): error: (.*)$", re.MULTILINE)
_LINE = re.compile(r"\bon line \d+")
# Of pytest's output, what a failure needs.
_KEPT = 6000


@dataclass(frozen=True)
class Place:
    """A patch (or port) in a tree: its commit, and the one below it."""

    tree: Path
    patch: Path
    before: str
    commit: str

    def python_files(self) -> list[str]:
        """The Python files that it adds or changes."""
        names = git(
            *("diff", "--name-only", "-z", "--no-renames", "--diff-filter=d"),
            *(self.before, self.commit, "--", "*.py", "*.pyi"),
            cwd=self.tree,
        )
        return names.split("\0")[:-1]

    def contents(self, commit: str) -> str:
        """The hash of all files at a commit."""
        return git("rev-parse", f"{commit}^{{tree}}", cwd=self.tree).strip()


@dataclass
class Verdict:
    """How a check went. `counts` is per outcome of a test, `files` what was checked."""

    kind: str
    passed: bool
    seconds: float = 0.0
    detail: str = ""
    files: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    needs_gpu: list[str] = field(default_factory=list)
    known: bool = False

    def words(self) -> str:
        """The verdict for a table."""
        if not self.passed:
            return "FAILED"
        if self.kind == TESTS:
            done = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
            return done or ("needs a GPU" if self.needs_gpu else "none carried")
        return "ok" if self.files else "no Python"


def judge(place: Place, kind: str) -> Verdict:
    """Run one check of a place, or take its verdict from the cache. The tree must hold the commit.

    Raises Failure if the tools can't be had.
    """
    check = {RUFF: _ruff, MYPY: _mypy, TESTS: _tests}[kind]
    file = _VERDICTS / f"{_key(place, kind)}.json"
    if file.exists():
        return Verdict(**json.loads(file.read_text(encoding="utf-8")) | {"known": True})
    started = time.monotonic()
    verdict = check(place)
    verdict.seconds = round(time.monotonic() - started, 1)
    if verdict.passed:
        _VERDICTS.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{kind}.part")
        part.write_text(json.dumps(asdict(verdict), indent=1) + "\n", encoding="utf-8")
        part.replace(file)
    return verdict


def known(place: Place, kind: str) -> Verdict | None:
    """The verdict of a check that passed on these contents, if it was run."""
    file = _VERDICTS / f"{_key(place, kind)}.json"
    return Verdict(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def _key(place: Place, kind: str) -> str:
    parts = [kind, place.contents(place.commit), *_own_code()]
    if kind == TESTS:
        parts += [*patchfile.carried_tests(place.patch), *_runner()]
    else:
        parts += [place.contents(place.before), *place.python_files()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _own_code() -> list[str]:
    return [_digest(Path(__file__)), sys.version]


@cache
def _runner() -> list[str]:
    """What the tests run in, besides the tree."""
    folders = (_RUNNER.parent, _CODE / "tests" / "plugin")
    files = [path for folder in folders for path in sorted(folder.rglob("*.*")) if path.is_file()]
    stamp = Path(sys.prefix) / "quant-kv.json"
    return [_digest(path) for path in (*files, stamp) if path.suffix != ".pyc" and path.exists()]


def _run(command: list[str], tree: Path, env: dict[str, str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        command,
        cwd=tree,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout.strip()


def _ruff(place: Place) -> Verdict:
    files = place.python_files()
    if not files:
        return Verdict(RUFF, True)
    ruff = [str(tools(place.tree).python), "-m", "ruff"]
    failed = []
    for arguments in (("check", "--output-format=concise"), ("format", "--check", "--diff")):
        command = [*ruff, *arguments, "--no-cache", "--force-exclude", "--", *files]
        code, output = _run(command, place.tree)
        if code:
            failed.append(output)
    return Verdict(RUFF, not failed, detail="\n".join(failed), files=files)


def _mypy(place: Place) -> Verdict:
    """The release's own script on the files; errors that they had before don't count."""
    files = place.python_files()
    if not files:
        return Verdict(MYPY, True)
    with_pins = tools(place.tree)
    found = _type_errors(place.tree, files, with_pins)
    if found:
        with _at(place.tree, place.before, place.commit):
            before = [file for file in files if (place.tree / file).exists()]
            old = [kind for kind, _ in _type_errors(place.tree, before, with_pins)]
        new = []
        for kind, line in found:
            if kind in old:
                old.remove(kind)
            else:
                new.append(line)
        return Verdict(MYPY, not new, detail="\n".join(new), files=files)
    return Verdict(MYPY, True, files=files)


def _type_errors(tree: Path, files: list[str], with_pins: Tools) -> list[tuple[str, str]]:
    """Each error without its line numbers, and its whole line."""
    if not files:
        return []
    script = [str(with_pins.python), "tools/pre_commit/mypy.py", with_pins.pins.python]
    code, output = _run([*script, *files], tree, with_pins.environment())
    found = [
        (f"{path}: {_LINE.sub('', text)}", f"{path}:{line}: {text}")
        for path, line, text in _ERROR.findall(output)
    ]
    if code and not found:
        raise Failure(f"{' '.join(script)} ends with {code}:\n{output}")
    return found


@contextmanager
def _at(tree: Path, commit: str, back: str) -> Iterator[None]:
    """Check another commit out, and the first again on leaving."""
    check_out(tree, commit)
    try:
        yield
    finally:
        check_out(tree, back)


def check_out(tree: Path, commit: str) -> None:
    """Put a commit's files into a scratch tree, whatever a check has left there."""
    git("checkout", "--quiet", "--force", "--detach", commit, cwd=tree)
    git("clean", "--quiet", "-ffd", cwd=tree)


def _tests(place: Place) -> Verdict:
    """Each file that runs without a GPU has to have a test that passes, and none that fails."""
    paths = patchfile.carried_tests(place.patch)
    if not paths:
        return Verdict(TESTS, True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, str(_RUNNER), str(place.tree), str(report), *paths]
        environment = os.environ | {"PYTHONPATH": str(_CODE)}
        code, output = _run(command, _CODE, environment)
        if code or not report.exists():
            return Verdict(TESTS, False, detail=output[-_KEPT:], files=paths)
        found = json.loads(report.read_text(encoding="utf-8"))
    needs_gpu: list[str] = found["needs_gpu"]
    run = [path for path in paths if path not in needs_gpu]
    outcomes: dict[str, dict[str, int]] = found["outcomes"]
    bad = [
        path
        for path in run
        if outcomes.get(path, {}).get("failed") or not outcomes.get(path, {}).get("passed")
    ]
    counts: dict[str, int] = {}
    for outcome in outcomes.values():
        for name, count in outcome.items():
            counts[name] = counts.get(name, 0) + count
    detail = ""
    if bad:
        detail = f"a test fails, or none runs, in {', '.join(bad)}:\n{found['output'][-_KEPT:]}"
    return Verdict(TESTS, not bad, detail=detail, files=run, counts=counts, needs_gpu=needs_gpu)
