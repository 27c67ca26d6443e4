"""python -m scripts.lint: every static check of the repository, each named with its verdict.

The patches (scripts.series lint); ruff's rules and formatting, with vLLM's own configuration on
the Python files that the series touches and with ours on scripts/ and tests/; mypy on scripts/.
Exit code 1 if any of them fails; all of them run, whatever the ones before said.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from scripts.common import ROOT, VLLM, Failure, git, main, say, series_names
from scripts.series.base import require
from scripts.series.tree import base_of, stack


@dataclass(frozen=True)
class Check:
    """A command of the environment's Python and the folder it runs in (None: this one)."""

    name: str
    arguments: tuple[str, ...]
    folder: Path | None


def touched() -> list[str]:
    """The Python files in vllm/ that differ from the base, uncommitted edits included.

    Raises Failure if the series isn't applied: the check would speak of the base.
    """
    tree = require()
    base = base_of(tree)
    if len(stack(tree, base)) < len(series_names()):
        raise Failure("the series is not wholly applied to vllm/: make apply")
    names = git("diff", "--name-only", "-z", "--no-renames", "--diff-filter=d", base, "--", "*.py")
    return names.split("\0")[:-1]


def checks() -> list[Check]:
    """The checks in the order they run."""
    own = tuple(name for name in ("scripts", "tests") if (ROOT / name).is_dir())
    theirs = touched()
    found = [Check("the patches", ("scripts.series", "lint"), None)]
    for label, folder, files in (
        (f"the series' files in vllm/ ({len(theirs)})", VLLM, theirs),
        ("scripts/ and tests/", ROOT, own),
    ):
        # Files that are named would be checked even where the configuration leaves them out.
        where = ("--force-exclude", *files)
        if files:
            found.append(Check(f"rules, {label}", ("ruff", "check", *where), folder))
            form = ("ruff", "format", "--check", "--diff", *where)
            found.append(Check(f"formatting, {label}", form, folder))
    found.append(Check("types, scripts/", ("mypy", "scripts"), ROOT))
    return found


def run(check: Check) -> bool:
    """Run one check and print its verdict, and its output if it fails."""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", *check.arguments],
        cwd=check.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    verdict = "FAILED" if done.returncode else "ok"
    say(f"{verdict:6} {check.name} ({time.monotonic() - start:.1f} s)")
    if done.returncode:
        say(done.stdout.rstrip())
    return done.returncode == 0


def lint() -> int:
    """Run all checks; returns 1 if any failed."""
    missing = [tool for tool in ("ruff", "mypy") if not importlib.util.find_spec(tool)]
    if missing:
        raise Failure(
            f"{sys.executable} has no {' and no '.join(missing)}: `make build`, then "
            "`make lint` (which runs .venv/bin/python -m scripts.lint)"
        )
    failed = [check.name for check in checks() if not run(check)]
    if failed:
        say(f"{len(failed)} failed: {'; '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    main(lint)
