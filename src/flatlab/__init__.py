"""A laboratory for one question: does a flat minimum generalise, and why?

Importing flatlab is cheap: torch and numba load when something needs them.

>>> import flatlab as fl
>>> data = fl.data.xor(d=10, n=40, seed=0)
>>> arch = fl.models.TwoLayer(width=50, bias=True)
>>> phase = fl.Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=5)
>>> fl.train(arch, data, schedule=[phase], seed=0).status
'done'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import anatomy as anatomy
    from . import data as data
    from . import measures as measures
    from . import models as models
    from . import optim as optim
    from .dissecting import dissect as dissect
    from .errors import FlatlabError as FlatlabError
    from .explaining import explain as explain
    from .losses import Loss as Loss
    from .measures import Budget as Budget
    from .measuring import invariance as invariance
    from .measuring import measure as measure
    from .measuring import rescale as rescale
    from .problem import Problem as Problem
    from .run import Run as Run
    from .run import load_run as load_run
    from .schedule import LogGrid as LogGrid
    from .schedule import Phase as Phase
    from .tracking import Tracker as Tracker
    from .training import train as train

__version__ = "0.1.0"

_ROOMS = ("anatomy", "data", "measures", "models", "optim")
_NAMES = {
    "Budget": "measures",
    "Problem": "problem",
    "Tracker": "tracking",
    "dissect": "dissecting",
    "explain": "explaining",
    "invariance": "measuring",
    "measure": "measuring",
    "rescale": "measuring",
    "FlatlabError": "errors",
    "LogGrid": "schedule",
    "Loss": "losses",
    "Phase": "schedule",
    "Run": "run",
    "load_run": "run",
    "train": "training",
}

__all__ = [
    "Budget",
    "FlatlabError",
    "LogGrid",
    "Loss",
    "Phase",
    "Problem",
    "Run",
    "Tracker",
    "anatomy",
    "data",
    "dissect",
    "explain",
    "invariance",
    "load_run",
    "measure",
    "measures",
    "models",
    "optim",
    "rescale",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'flatlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
