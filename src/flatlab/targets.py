"""What `flatlab measure` is pointed at: a stored run, or a factory in the user's own code."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .data.catalogue import make
from .errors import UserError
from .from_flags import parse_spec
from .run import load_run


@dataclass(frozen=True)
class Target:
    """What to measure, and what to measure distances from (None if unknown)."""

    model: Any
    loss: Any
    data: Any
    reference: Mapping[str, Any] | None = None


def target_of(text: str, data: str | None = None) -> Target:
    """Return what a path or MODULE:FACTORY names, with other data if they are given."""
    path = Path(text)
    found = _of_run(path) if path.is_dir() else _of_factory(text)
    if data is None:
        return found
    npz = data.endswith(".npz") and not data.startswith("file:")
    spec = {"name": "file", "path": data} if npz else parse_spec(data, "name")
    return Target(found.model, found.loss, make(spec), found.reference)


def _of_run(path: Path) -> Target:
    run = load_run(path)
    data = run.dataset()
    start = run.config.arch.initial(data.d, run.config.seed)
    reference = {name: torch.tensor(value) for name, value in start.items()}
    return Target(run.module(), run.config.loss, data, reference)


def _of_factory(text: str) -> Target:
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name:
        raise UserError(
            f"{text!r} is neither a run directory nor MODULE:FACTORY (e.g. examples/cnn.py:make)"
        )
    module = _module(where)
    factory = getattr(module, name, None)
    if not callable(factory):
        raise UserError(f"{where} has no function {name!r}")
    made = factory()
    if not isinstance(made, tuple | list) or len(made) != 3:
        raise UserError(f"{text} must return (model, loss, data), got {type(made).__name__}")
    return Target(*made)


def _module(where: str) -> ModuleType:
    """Import a file (examples/cnn.py) or a module (package.module), from here as Python would."""
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(where).stem, where)
            assert spec is not None and spec.loader is not None  # a .py file always has one
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
        sys.path.insert(0, "")
        return importlib.import_module(where)
    except (ImportError, OSError) as error:
        raise UserError(f"cannot import {where}: {error}") from None
