"""Compile a kernel, or load it from numba's cache, in one process at a time.

Numba's cache has no lock. Its index numbers the compiled forms of a function, one for each dtype.
Two processes that compile two forms at once may take the same number, and a later process would
load the form of the wrong dtype. Two processes that need the same form would compile it twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numba import typeof
from numba.core.registry import cpu_target

from ..files.durable import in_turn

_loaded: set[tuple[Any, str]] = set()


def load(kernel: Any, dtype: str, args: tuple[Any, ...]) -> None:
    """Compile or load a kernel for arguments of these types; the dtype determines the types."""
    if (kernel, dtype) in _loaded or not hasattr(kernel, "py_func"):  # NUMBA_DISABLE_JIT=1
        return
    name = kernel.py_func.__qualname__
    with in_turn(Path(kernel.stats.cache_path) / f"{kernel.py_func.__module__}.{name}.lock"):
        kernel.compile(tuple(typeof(arg) for arg in args))
    _loaded.add((kernel, dtype))


def fill_tables() -> None:
    """Fill numba's tables of types and functions, so that processes forked from this one need not.

    Otherwise numba fills them before the first kernel.
    """
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
