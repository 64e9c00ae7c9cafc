"""The catalogue: one file a figure. A new experiment is one file and one line here."""

from .contract import Experiment as Experiment
from .contract import Findings as Findings
from .contract import Verdict as Verdict
from .wen2023 import fig1, fig4, fig5, fig7, fig8, fig9, fig11, table1

__all__ = ["CATALOGUE", "Experiment", "Findings", "Verdict"]

CATALOGUE: dict[str, Experiment] = {
    module.EXPERIMENT.id: module.EXPERIMENT
    for module in (
        table1,
        fig1,
        fig4,
        fig5,
        fig7,
        fig8,
        fig9,
        fig11,
    )
}
