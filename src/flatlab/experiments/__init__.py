"""The catalogue: one file a figure. A new experiment is one file and one line here."""

from .contract import Experiment as Experiment
from .contract import Findings as Findings
from .contract import Verdict as Verdict
from .wen2023 import table1

__all__ = ["CATALOGUE", "Experiment", "Findings", "Verdict"]

CATALOGUE: dict[str, Experiment] = {
    experiment.id: experiment for experiment in (table1.EXPERIMENT,)
}
