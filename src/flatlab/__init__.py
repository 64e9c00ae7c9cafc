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
    from . import losses as losses
    from . import measures as measures
    from . import models as models
    from . import optim as optim
    from .cli.verbs import construct as construct
    from .cli.verbs import flattest as flattest
    from .cli.verbs import reproduce as reproduce
    from .cli.verbs import run as run
    from .cli.verbs import verify as verify
    from .errors import FlatlabError as FlatlabError
    from .losses import Loss as Loss
    from .measures import Budget as Budget
    from .measures.explaining import explain as explain
    from .measures.measuring import invariance as invariance
    from .measures.measuring import measure as measure
    from .measures.measuring import rescale as rescale
    from .measures.tracking import Tracker as Tracker
    from .problem import Problem as Problem
    from .training.config import Tracked as Tracked
    from .training.dissecting import dissect as dissect
    from .training.run import Run as Run
    from .training.run import load_run as load_run
    from .training.schedule import LogGrid as LogGrid
    from .training.schedule import Phase as Phase
    from .training.schedule import Until as Until
    from .training.session import train as train

__version__ = "0.1.0"

_ROOMS = ("anatomy", "data", "losses", "measures", "models", "optim")
_NAMES = {
    "Budget": "measures",
    "Problem": "problem",
    "Tracked": "training.config",
    "Tracker": "measures.tracking",
    "Until": "training.schedule",
    "dissect": "training.dissecting",
    "explain": "measures.explaining",
    "invariance": "measures.measuring",
    "measure": "measures.measuring",
    "rescale": "measures.measuring",
    "FlatlabError": "errors",
    "LogGrid": "training.schedule",
    "Loss": "losses",
    "Phase": "training.schedule",
    "Run": "training.run",
    "load_run": "training.run",
    "construct": "cli.verbs",
    "flattest": "cli.verbs",
    "reproduce": "cli.verbs",
    "run": "cli.verbs",
    "train": "training.session",
    "verify": "cli.verbs",
}

__all__ = sorted([*_NAMES, *_ROOMS])


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'flatlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
