"""Training: what a run is, and the one call that trains it, logs it, stores it and resumes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .schedule import LogGrid as LogGrid
from .schedule import Phase as Phase

if TYPE_CHECKING:
    from .config import RunConfig as RunConfig
    from .run import Run as Run
    from .run import load_run as load_run
    from .session import run_config as run_config
    from .session import train as train

__all__ = ["LogGrid", "Phase", "Run", "RunConfig", "load_run", "run_config", "train"]

# Loaded when asked for: a phase is described without the engine, a run is read without it.
_HOMES = {
    "Run": "run",
    "RunConfig": "config",
    "load_run": "run",
    "run_config": "session",
    "train": "session",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
