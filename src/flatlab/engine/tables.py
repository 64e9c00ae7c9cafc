"""Numba's tables of types and functions, which it fills before the first kernel."""

from __future__ import annotations

from numba.core.registry import cpu_target


def fill_tables() -> None:
    """Fill them now, so that processes forked from this one need not."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
