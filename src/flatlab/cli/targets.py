"""What `flatlab measure` is pointed at: a stored run, or a factory in the user's own code."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ..data.catalogue import make
from ..errors import FlatlabError, UserError, described, in_words
from ..training.run import load_run
from .from_flags import data_spec


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
    return Target(found.model, found.loss, make(data_spec(data)), found.reference)


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
    with _blamed(f"cannot import {where}"):
        module = _module(where)
    factory = getattr(module, name, None)
    if not callable(factory):
        raise UserError(f"{where} has no function {name!r}")
    _check_arguments(text, factory)
    with _blamed(f"{text} failed"):
        made = factory()
    if not isinstance(made, tuple | list) or len(made) != 3:
        raise UserError(f"{text} must return (model, loss, data), got {in_words(made)}")
    return Target(*made)


def _check_arguments(text: str, factory: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some callables written in C have none
        return
    needed = [
        p.name
        for p in signature.parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise UserError(
            f"{text} needs the arguments {', '.join(needed)}: it is called without any, so give "
            "them defaults or write a function around it"
        )


@contextlib.contextmanager
def _blamed(what: str) -> Iterator[None]:
    """Turn an error in the user's own code into one line that says where it is."""
    try:
        yield
    except FlatlabError:
        raise
    except (ImportError, OSError) as error:
        raise UserError(f"{what}: {error}") from None
    except SyntaxError as error:
        raise UserError(f"{what}: {error.msg} in {error.filename}, line {error.lineno}") from None
    except (Exception, SystemExit) as error:
        raise UserError(f"{what}: {described(error)}") from None


def _module(where: str) -> ModuleType:
    """Import a file (examples/cnn.py) or a module (package.module), from here as Python would."""
    if not where.endswith(".py"):
        sys.path.insert(0, "")
        return importlib.import_module(where)
    name = f"target_{Path(where).stem}"
    spec = importlib.util.spec_from_file_location(name, where)
    assert spec is not None and spec.loader is not None  # a .py file always has one
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look for it there
    spec.loader.exec_module(module)
    return module
