"""A kernel before its first call: compiled, or loaded from numba's cache, by one process at a time.

Numba's cache knows no lock. A function's compiled forms (one for each dtype) have an index and are
numbered in it. Two processes that compile two forms at once may take the same number, and a later
one would load the form of another dtype under it. Two that need the same compile it twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numba import typeof

from ..files.durable import in_turn

_loaded: set[tuple[Any, str]] = set()


def load(kernel: Any, dtype: str, args: tuple[Any, ...]) -> None:
    """Compile or load a kernel for arguments of these types, which the dtype decides."""
    if (kernel, dtype) in _loaded:
        return
    name = kernel.py_func.__qualname__
    with in_turn(Path(kernel.stats.cache_path) / f"{kernel.py_func.__module__}.{name}.lock"):
        kernel.compile(tuple(typeof(arg) for arg in args))
    _loaded.add((kernel, dtype))
