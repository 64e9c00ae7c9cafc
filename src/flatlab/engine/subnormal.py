"""Treat subnormal numbers as zero: processors take about a hundred cycles per operation on one.

With weight decay, weights without a gradient shrink by a factor in every step and end below the
smallest normal number (1.2e-38 in float32), where they no longer matter and make a step several
times slower. Within `flushed()` this thread's arithmetic treats them as zero. Other processors than
x86-64 are not changed, since this only affects speed.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# With NUMBA_DISABLE_JIT=1 nothing is compiled, this neither.
X86 = platform.machine().lower() in ("x86_64", "amd64") and not config.DISABLE_JIT  # type: ignore[attr-defined]
# Bits of the control register MXCSR: subnormal results and subnormal operands become zero.
FLUSH, OPERANDS = 1 << 15, 1 << 6


def _access(name: str, builder: Any, place: Any) -> None:
    byte = ir.IntType(8).as_pointer()
    call = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [byte]), f"llvm.x86.sse.{name}"
    )
    builder.call(call, [builder.bitcast(place, byte)])


@intrinsic
def _read(context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, ir.IntType(32))
        _access("stmxcsr", builder, place)
        return builder.load(place)

    return types.uint32(), generate


@intrinsic
def _write(context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once_value(builder, arguments[0])
        _access("ldmxcsr", builder, place)
        return context.get_dummy_value()

    return types.void(types.uint32), generate


@njit(cache=True)
def _control() -> int:
    return _read()  # type: ignore[call-arg]


@njit(cache=True)
def _set_control(value: int) -> None:
    _write(types.uint32(value))  # type: ignore[call-arg]


@contextlib.contextmanager
def flushed() -> Iterator[None]:
    """Treat subnormal numbers as zero in this thread; restore the register afterwards."""
    if not X86:
        yield
        return
    before = _control()
    _set_control(before | FLUSH | OPERANDS)
    try:
        yield
    finally:
        _set_control(before)
