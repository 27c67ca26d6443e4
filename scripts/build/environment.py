"""The isolated environment in .venv: what the lock file says, and the patched tree on its path."""

import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256

from scripts.build.pip import pip, show
from scripts.build.target import Target
from scripts.common import BASE_VERSION, ROOT, VLLM, Failure

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "quant-kv.json"
PLUGIN = ROOT / "tests" / "plugin"
OLDEST, NEWEST = (3, 11), (3, 13)
TORCH = "torch==2.13.0"
INSTALL = ("install", "--no-deps", "--only-binary=:all:")

# Two distributions: the release's source folder brings metadata of its own, which hides the first's
# entry points whenever it is the working directory.
DISTRIBUTIONS = {
    f"vllm-{BASE_VERSION}": "[console_scripts]\nvllm = vllm.entrypoints.cli.main:main\n",
    "interpreted_platform-1": (
        "[vllm.platform_plugins]\ninterpreted = interpreted_platform:register\n"
    ),
}


def ensure(target: Target) -> bool:
    """Make .venv what `target`'s lock file says; return whether anything had to be installed.

    The stamp is written last: an environment without it was interrupted and is made anew.
    """
    key = _key(target)
    installed = _stamp() != key or not PYTHON.exists()
    if installed:
        shutil.rmtree(VENV, ignore_errors=True)
        show("environment: creating .venv", end="\n")
        _create()
        _install(target)
        STAMP.write_text(json.dumps(key, indent=1) + "\n")
    _register()
    return installed


def _key(target: Target) -> dict[str, str]:
    lock = sha256(target.packages.read_bytes()).hexdigest()
    return {"device": target.device, "torch": TORCH, "lock": lock, "root": str(ROOT)}


def _stamp() -> dict[str, str] | None:
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return None


def _interpreter() -> str:
    """A Python that the locked wheels exist for: this one, else another on PATH."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return sys.executable
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        if found := shutil.which(f"python3.{minor}"):
            return found
    raise Failure(
        f"Python {sys.version_info[0]}.{sys.version_info[1]} is not one that the lock files cover: "
        f"put python3.{OLDEST[1]} to python3.{NEWEST[1]} on PATH"
    )


def _create() -> None:
    subprocess.run([_interpreter(), "-m", "venv", str(VENV)], check=True)


def _install(target: Target) -> None:
    _install_locked(target, f"environment: {target.device} packages")
    if target.device == "cpu":
        _install_cpu_torch()


def _install_locked(target: Target, label: str) -> None:
    """Install what the lock file holds: every package that is needed, so pip resolves nothing."""
    locked = ("--require-hashes", "-r", str(target.packages))
    total = target.packages.read_text().count("==")
    pip(PYTHON, *INSTALL, *locked, label=label, total=total)


def _install_cpu_torch() -> None:
    """torch's CPU build, whose version carries a suffix; the plain build where no index has it.

    The suffixed build is on torch's own index, which a user names to pip; the plain one is the CUDA
    build: ten times larger with the libraries that it loads, but it computes the same on a CPU.
    """
    try:
        pip(PYTHON, *INSTALL, f"{TORCH}+cpu", label="environment: torch for CPU")
    except Failure:
        show(
            "environment: no index here has torch's CPU build: its CUDA build is installed "
            "(about 3 GB). Name torch's CPU index in PIP_EXTRA_INDEX_URL for the small one.",
            end="\n",
        )
        _install_locked(Target("cuda"), "environment: torch and its libraries")


def _register() -> None:
    """Put vllm/ and the test platform on the path, with the metadata that vLLM reads of itself."""
    site = next((VENV / "lib").glob("python3.*/site-packages"))
    files = {site / "quant-kv.pth": f"{VLLM}\n{PLUGIN}\n"}
    for name, entry_points in DISTRIBUTIONS.items():
        package, version = name.split("-")
        info = site / f"{name}.dist-info"
        info.mkdir(exist_ok=True)
        files[info / "METADATA"] = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        files[info / "entry_points.txt"] = entry_points
        files[info / "INSTALLER"] = "make build\n"
    for path, text in files.items():
        if not path.exists() or path.read_text() != text:
            part = path.with_name(path.name + ".part")
            part.write_text(text)
            os.replace(part, path)
