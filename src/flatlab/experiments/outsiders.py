"""Experiments of the user's own: "mine.py:EXPERIMENT" names one in a file or a module.

Its runs are plain data, so other processes need nothing of the file. A computation whose target is
in the same file is called by the file's path, so that another process finds it.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UserError, in_words
from ..outside.functions import blamed, object_named
from .arms import Comparison
from .contract import Computation, Experiment, Findings, Planned


def is_outside(text: str) -> bool:
    """Return whether an id names an object in a file or module, and not an experiment's id.

    >>> is_outside("mine.py:EXPERIMENT"), is_outside("wen2023/fig4")
    (True, False)
    """
    return ":" in text or text.endswith(".py")


def outside(text: str) -> Experiment:
    """Return the user's own experiment of this name.

    Raises:
        UserError: There is no such file or object, it is no experiment, or its id is not a new one.
    """
    where = text.rpartition(":")[0]
    if not where:
        raise UserError(f"{text} names a file: say which object is meant, as in {text}:EXPERIMENT")
    given = object_named(text)
    if isinstance(given, Comparison):
        given = given.experiment(where)
    if not isinstance(given, Experiment):
        raise UserError(f"{text} must be an Experiment or a Comparison, got {in_words(given)}")
    if not isinstance(given.id, str) or not re.fullmatch(r"[\w.-]+/[\w.-]+", given.id):
        raise UserError(f"the id of {text} must be like 'mine/first', got {given.id!r}")
    if not given.presets:
        raise UserError(f"{text} has no presets: give it at least one, such as 'lab'")

    def plan(settings: Any) -> Sequence[Planned | Computation]:
        with blamed(f"the plan of {text} failed"):
            return [_found_again(p, where) for p in given.plan(settings)]

    def analyse(settings: Any, preset: str, made: Mapping[str, Any]) -> Findings:
        with blamed(f"the analysis of {text} failed"):
            return given.analyse(settings, preset, made)

    return dataclasses.replace(given, plan=plan, analyse=analyse)


def _found_again(planned: Planned | Computation, where: str) -> Planned | Computation:
    """Return planned work; a target in the file of the experiment is named by the file's path."""
    if not isinstance(planned, Computation) or not where.endswith(".py"):
        return planned
    module, _, function = planned.target.rpartition(":")
    path = os.path.abspath(os.path.expanduser(where))
    loaded = sys.modules.get(module)
    if getattr(loaded, "__file__", None) is None or module.endswith(".py"):
        return planned
    if os.path.abspath(str(loaded.__file__)) != path:  # type: ignore[union-attr]
        return planned
    return dataclasses.replace(planned, target=f"{path}:{function}")
