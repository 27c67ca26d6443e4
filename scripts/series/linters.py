"""ruff and mypy in the versions that a release's own pre-commit configuration pins."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scripts.build.pip import pip
from scripts.common import CACHE, Failure

CONFIGURATION = ".pre-commit-config.yaml"
_RUFF = "https://github.com/astral-sh/ruff-pre-commit"
_MYPY = "python tools/pre_commit/mypy.py"


@dataclass(frozen=True)
class Pins:
    """What the configuration names: requirements for pip, and the Python that mypy assumes."""

    requirements: tuple[str, ...]
    python: str


@dataclass(frozen=True)
class Tools:
    """A Python that has what the pins name."""

    python: Path
    pins: Pins

    def environment(self) -> dict[str, str]:
        """The variables under which the release's script finds this mypy, and its cache."""
        path = f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return (
            {"MYPY_CACHE_DIR": str(CACHE / "check-series" / "mypy")} | os.environ | {"PATH": path}
        )


def tools(tree: Path) -> Tools:
    """The tools for a release's tree: this Python where it has them, else an environment for them.

    Raises Failure if the configuration names no such tools, or pip can't install them.
    """
    return _tools(pins((tree / CONFIGURATION).read_text(encoding="utf-8")))


def pins(text: str) -> Pins:
    """Read a pre-commit configuration. Raises Failure where it has another form."""
    import yaml  # in .venv only

    repositories: list[dict[str, Any]] = yaml.safe_load(text)["repos"]
    ruff = [entry["rev"] for entry in repositories if entry["repo"] == _RUFF]
    hooks = [hook for entry in repositories for hook in entry["hooks"]]
    mypy = [
        hook
        for hook in hooks
        # Those of the other Pythons run in upstream's CI alone.
        if hook.get("entry", "").startswith(_MYPY) and hook.get("stages") != ["manual"]
    ]
    if len(ruff) != 1 or len(mypy) != 1:
        raise Failure(f"{CONFIGURATION} has {len(ruff)} ruff and {len(mypy)} mypy, not one of each")
    python = mypy[0]["entry"].removeprefix(_MYPY).strip().strip('"')
    return Pins((f"ruff=={ruff[0].removeprefix('v')}", *mypy[0]["additional_dependencies"]), python)


@cache
def _tools(wanted: Pins) -> Tools:
    if all(_present(requirement) for requirement in wanted.requirements):
        return Tools(Path(sys.executable), wanted)
    key = hashlib.sha256(repr((wanted.requirements, sys.version_info[:2])).encode()).hexdigest()
    folder = CACHE / "linters" / key[:12]
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        label = "installing vLLM's linters: " + ", ".join(wanted.requirements[:2])
        pip(python, "install", *wanted.requirements, label=label, total=len(wanted.requirements))
        complete.touch()
    return Tools(python, wanted)


def _present(requirement: str) -> bool:
    name, _, wanted = re.sub(r"\s", "", requirement).partition("==")
    try:
        return version(name) == (wanted or version(name))
    except PackageNotFoundError:
        return False
