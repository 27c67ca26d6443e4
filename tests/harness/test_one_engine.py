"""Stock and patched in one process is refused, whichever came first."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from scripts.common import VLLM, Failure
from scripts.harness import engine


def module(monkeypatch: pytest.MonkeyPatch, name: str, file: Path) -> None:
    """A module of that name, as if it had been imported from the file."""
    made = ModuleType(name)
    made.__file__ = str(file)
    monkeypatch.setitem(sys.modules, name, made)


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own process starts without one."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_binary_linked_into_the_tree_belongs_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "wheel.so").touch()
    (tmp_path / "vllm" / "_C.so").symlink_to(tmp_path / "wheel.so")
    module(monkeypatch, "vllm._C", tmp_path / "vllm" / "_C.so")
    engine.require_one(tmp_path)
    with pytest.raises(Failure):
        engine.require_one(tmp_path / "other")


def test_the_tree_itself_is_accepted_and_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    module(monkeypatch, "vllm", VLLM / "vllm" / "__init__.py")
    module(monkeypatch, "vllm_other", Path("/elsewhere/vllm_other.py"))
    engine.put_first()
    assert sys.path[0] == str(VLLM)
    assert sys.path.count(str(VLLM)) == 1


@pytest.mark.parametrize("name", ["vllm", "vllm.v1.attention.backends.triton_attn"])
def test_a_module_from_elsewhere_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    module(monkeypatch, "vllm.config", VLLM / "vllm" / "config.py")
    module(monkeypatch, name, tmp_path / "vllm" / "x.py")
    for check in (engine.require_one, engine.put_first):
        with pytest.raises(Failure, match="stock and patched in one process") as refused:
            check()
        assert name in str(refused.value) and "process of its own" in str(refused.value)
