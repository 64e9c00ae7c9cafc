"""The target of `flatlab measure`: a stored run, or a factory in the user's own code."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.catalogue import make
from ..errors import FlatlabError, UserError, in_words
from ..outside.functions import blamed, function_named
from ..training.run import Run, changed_code, load_run, start_of, unfinished
from ..training.stored_optimizer import stored_optimizer
from .from_flags import data_spec

if TYPE_CHECKING:
    from torch import nn

    from ..data import Dataset


@dataclasses.dataclass(frozen=True)
class Target:
    """A model with its loss and data; distances are measured from `reference` (None if unknown).

    `preconditioner` is the optimizer of a stored run, for measures in its metric.

    `status` and `notes` are those of a stored run; the first note of an unfinished one says so.
    """

    model: Any
    loss: Any
    data: Any
    reference: Mapping[str, Any] | None = None
    preconditioner: Any = None
    status: str | None = None
    notes: tuple[str, ...] = ()


def target_of(text: str, data: str | None = None) -> Target:
    """Return the target that a path or MODULE:FACTORY names, with other data if given."""
    path = Path(text)
    found = _of_run(path) if path.is_dir() else _of_factory(text)
    if data is None:
        return found
    return dataclasses.replace(found, data=make(data_spec(data)))


def _of_run(path: Path) -> Target:
    run = load_run(path)
    data = run.dataset()
    start = _start(run, data)
    named = () if start is None else start.named_parameters()
    reference = {name: value.detach() for name, value in named} or None
    notes = (unfinished(run), *run.notes) if run.status == "interrupted" else run.notes
    notes += changed_code(run.config, run.code)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the code of .* has changed")  # it is in the notes
        model = run.module()
    stepped = stored_optimizer(run, model)
    return Target(model, run.config.loss, data, reference, stepped, run.status, notes)


def _start(run: Run, data: Dataset) -> nn.Module | None:
    """Return the network that a run began with; None if it is gone, or was made by theory."""
    if run.config.start is None:
        return run.config.arch.module(data, run.config.seed)
    if "run" not in run.config.start:
        return None
    with contextlib.suppress(FlatlabError):
        return start_of(run.config.start).module()
    return None


def _of_factory(text: str) -> Target:
    if ":" not in text:
        raise UserError(
            f"{text!r} is neither a run directory nor MODULE:FACTORY (e.g. examples/cnn.py:make)"
        )
    factory = function_named(text)
    _check_arguments(text, factory)
    with blamed(f"{text} failed"):
        made = factory()
    if inspect.iscoroutine(made):
        made.close()
        raise UserError(f"{text} is a coroutine (async def): write a plain function around it")
    if not isinstance(made, tuple | list) or len(made) != 3:
        raise UserError(f"{text} must return (model, loss, data), got {in_words(made)}")
    return Target(*made)


def _check_arguments(text: str, factory: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some callables written in C have no signature
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
