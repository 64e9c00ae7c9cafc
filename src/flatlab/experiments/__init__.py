"""Experiments: the figures and questions of each source, and `run`, which runs them."""

from .arms import Arm as Arm
from .arms import Comparison as Comparison
from .catalogue import CATALOGUE as CATALOGUE
from .contract import Computation as Computation
from .contract import Experiment as Experiment
from .contract import Findings as Findings
from .contract import Planned as Planned
from .contract import Verdict as Verdict
from .contract import measurement as measurement
from .results import Results as Results
from .running import run as run

__all__ = [
    "CATALOGUE",
    "Arm",
    "Comparison",
    "Computation",
    "Experiment",
    "Findings",
    "Planned",
    "Results",
    "Verdict",
    "measurement",
    "run",
]
