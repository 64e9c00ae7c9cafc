"""The catalogue: one file a figure or question. A new experiment is one file, found by itself."""

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from . import beyond, wen2023
from .contract import Experiment as Experiment
from .contract import Findings as Findings
from .contract import Verdict as Verdict

__all__ = ["CATALOGUE", "Experiment", "Findings", "Verdict"]


def _experiments(package: ModuleType) -> Iterator[Experiment]:
    """Yield the EXPERIMENT of every module: tables first, then figures by number."""
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if not info.ispkg]
    for name in sorted(names, key=_place):
        if not name.startswith("_"):
            yield import_module(f"{package.__name__}.{name}").EXPERIMENT


def _place(name: str) -> tuple[bool, str, int]:
    """Return what sorts fig2 before fig10.

    >>> sorted(["fig10", "sensitivity", "fig2", "table1"], key=_place)
    ['table1', 'fig2', 'fig10', 'sensitivity']
    """
    word, number = re.fullmatch(r"(.*?)(\d*)", name).groups()  # type: ignore[union-attr]
    return not word.startswith("table"), word, int(number or 0)


CATALOGUE: dict[str, Experiment] = {
    experiment.id: experiment
    for package in (wen2023, beyond)
    for experiment in _experiments(package)
}
