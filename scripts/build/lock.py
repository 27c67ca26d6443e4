"""Write cpu.lock and cuda.lock from requirements.txt: exact versions with their files' hashes."""

import os
import subprocess
import tempfile
import venv
from pathlib import Path

from scripts.build.pip import pip, show
from scripts.build.target import HERE, Target
from scripts.common import CACHE, Failure

TOOLS = CACHE / "lock-tools"
MARKER = "sys_platform == 'linux' and platform_machine == 'x86_64' and python_version < '3.14'"
PROJECT = f"""[project]
name = "lock"
version = "0"
requires-python = ">=3.11"
[tool.uv]
environments = ["{MARKER}"]
"""
# CUDA's own packages, and torch, whose CPU build has no fixed hash on every index.
CUDA_PREFIXES = ("torch", "nvidia-", "cuda-")


def write() -> None:
    """Resolve once: both devices run the same versions, the CPU's without CUDA's packages."""
    every = entries(_resolve())
    locks = {
        "cuda": every,
        "cpu": [entry for entry in every if not entry.startswith(CUDA_PREFIXES)],
    }
    for device, chosen in locks.items():
        path = Target(device).packages
        part = path.with_suffix(".part")
        part.write_text("".join(chosen))
        os.replace(part, path)
        show(f"lock: {path.name}, {len(chosen)} packages", end="\n")


def _resolve() -> str:
    """The resolver's output for requirements.txt."""
    uv = TOOLS / "bin" / "uv"
    if not uv.exists():
        venv.create(TOOLS, with_pip=True)
        pip(TOOLS / "bin" / "python", "install", "uv", label="lock: installing the resolver")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pyproject.toml").write_text(PROJECT)
        command = [str(uv), "pip", "compile", str(HERE / "requirements.txt"), "--universal"]
        command += ["--generate-hashes", "--no-header", "--no-annotate", "--python-version", "3.11"]
        # One version of a package for every Python: the lock needs no markers then.
        command += ["--fork-strategy", "fewest"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"no set of versions meets requirements.txt:\n{done.stderr}")
    return done.stdout


def entries(text: str) -> list[str]:
    """One string a package, its hashes included, without the marker that every line has."""
    found: list[str] = []
    foreign: list[int] = []
    for line in text.splitlines(keepends=True):
        if line.startswith(" "):
            found[-1] += line
            continue
        name, _, marker = line.rstrip(" \\\n").partition(" ; ")
        found.append(f"{name} \\\n")
        # Only a condition beyond the environment itself says that a package is for another one.
        if "implementation_name == 'pypy'" in marker:
            foreign.append(len(found) - 1)
    return [entry for index, entry in enumerate(found) if index not in foreign]
