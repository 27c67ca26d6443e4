"""A small base with the linters' configuration that a release has, and patches on it."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from ab_fixtures import Files, Patches, Stack, make
from series_lab import REASON

# This environment's own versions: none has to be installed.
PRE_COMMIT = f"""\
repos:
- repo: https://github.com/astral-sh/ruff-pre-commit
  rev: v{version("ruff")}
  hooks:
  - id: ruff-check
- repo: local
  hooks:
  - id: mypy-3.10
    entry: python tools/pre_commit/mypy.py "3.11"
    additional_dependencies: ["mypy=={version("mypy")}", regex]
  - id: mypy-3.12
    entry: python tools/pre_commit/mypy.py "3.12"
    additional_dependencies: ["mypy=={version("mypy")}", regex]
    stages: [manual]
"""
MYPY = """\
import subprocess
import sys

files = [name for name in sys.argv[2:] if name.startswith("vllm/")]
if files:
    sys.exit(subprocess.run(["mypy", "--python-version", sys.argv[1], *files]).returncode)
"""
TEMPLATE = """\
<!-- markdownlint-disable -->
PLEASE FILL IN THE PR DESCRIPTION HERE

## Purpose

## Test Plan

## Test Result

---
- [ ] The purpose of the PR.
- [ ] The test plan.

**BEFORE SUBMITTING, READ**
"""
OLD_ERROR = 'KNOWN: int = "of the base"\n'
GPU_FILE = "tests/kernels/attention/test_cache.py"
BASE: Files = {
    ".gitignore": "__pycache__/\n.hypothesis/\n",
    ".pre-commit-config.yaml": PRE_COMMIT,
    ".github/PULL_REQUEST_TEMPLATE.md": TEMPLATE,
    "pyproject.toml": '[tool.ruff]\nline-length = 250\n[tool.ruff.lint]\nselect = ["E", "F"]\n',
    "tools/pre_commit/mypy.py": MYPY,
    "vllm/__init__.py": "",
    "vllm/plan.py": f"{OLD_ERROR}SIZE = 1\n",
    "vllm/notes.txt": "".join(f"note {number}\n" for number in range(20)),
}


def message(**sections: str) -> str:
    """A patch's body: sections, then trailers. `status` is Upstream-Status."""
    status = sections.pop("status", "Pending")
    body = "\n\n".join(f"{name}: {text}" for name, text in sections.items())
    trailers = f"Upstream-Status: {status}\nSigned-off-by: Some Body <some.body@example.com>\n"
    return f"{body}\n\n{trailers}" if body else REASON


def counted(log: Path, name: str, value: int) -> str:
    """A test of vllm.NAME.SIZE that notes each of its runs in a file."""
    return (
        f"from vllm.{name} import SIZE\n\n\n"
        "def test_size():\n"
        f'    with open("{log}", "a") as file:\n'
        f'        file.write("{name}\\n")\n'
        f"    assert SIZE == {value}\n"
    )


def good(log: Path) -> Patches:
    """Three patches that are green on their own; the last has a test that needs a GPU."""
    return [
        (
            "[Core] Plan better",
            message(Why="The size was one.", What="It is two.", status="Pending (related: #12)"),
            {
                "vllm/plan.py": f"{OLD_ERROR}SIZE = 2\n",
                "tests/test_plan.py": counted(log, "plan", 2),
            },
        ),
        ("[Docs] Say so", REASON, {"vllm/notes.txt": "a note\n"}),
        (
            "[Kernel] Add a kernel",
            REASON,
            {
                "vllm/kernel.py": "SIZE = 3\n",
                "tests/test_kernel.py": counted(log, "kernel", 3),
                GPU_FILE: "def test_cache():\n    raise SystemExit\n",
            },
        ),
    ]


def lab(folder: Path, patches: Patches, base: Files = BASE) -> Stack:
    """The repository below folder, with patches/ written."""
    stack = make(folder, base, patches)
    # One for all labs of a session: most of its time goes into the standard library's stubs.
    stack.env["MYPY_CACHE_DIR"] = str(folder.parent / "mypy-cache")
    stack.run("scripts.series", "export")
    return stack
