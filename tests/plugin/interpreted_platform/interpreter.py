"""Two mends of Triton's interpreter: its speed, and its bfloat16."""

import inspect
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_MARK = "_quant_kv_mended"


def install() -> None:
    """Mend the interpreter of this process; a second call changes nothing."""
    if hasattr(interpreter, _MARK):
        return
    _patch_once_a_launch()
    _widen_bfloat16()
    setattr(interpreter, _MARK, True)


def _patch_once_a_launch() -> None:
    """Make it a third faster.

    The interpreter replaces the members of `triton.language` by its own when a kernel starts, and
    looks through all of them again at every call of a device function, `tl.max` and `tl.sum`
    included.  What was replaced stays so until the launch ends: looking again changes nothing.
    """
    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    seen: set[tuple[str, ...]] = set()

    def patch_once(fn: Any) -> Any:
        modules = (value for value in fn.__globals__.values() if inspect.ismodule(value))
        key = tuple(sorted({module.__name__ for module in modules if module in (tl, tl.core)}))
        if key in seen:
            return None
        seen.add(key)
        return patch(fn)

    def launch_afresh(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.clear()
        launch(self, *args, **kwargs)

    interpreter._patch_lang = patch_once
    interpreter.GridExecutor.__call__ = launch_afresh


def _widen_bfloat16() -> None:
    """Multiply bfloat16 as float32, and convert integers to it through float32.

    The interpreter keeps a bfloat16 as an integer of the same bits, and takes it for that integer
    in both.
    """
    builder = interpreter.InterpreterBuilder
    dot, cast = builder.create_dot, builder.cast_impl

    def widen(operand: Any) -> Any:
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        # A bfloat16 is the upper half of the float32 of the same value.
        bits = operand.data.astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), tl.float32)

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if target.scalar == tl.bfloat16 and source.dtype.scalar.is_int():
            source = cast(self, source, tl.float32)
        return cast(self, source, target)

    def create_dot(self: Any, a: Any, b: Any, *args: Any) -> Any:
        return dot(self, widen(a), widen(b), *args)

    builder.create_dot, builder.cast_impl = create_dot, cast_impl
