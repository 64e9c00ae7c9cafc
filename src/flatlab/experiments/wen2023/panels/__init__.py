"""The figures' common builder: parts a and b, trained by rows of Table 2 and compared."""

from ...judging import above as above
from ...judging import below as below
from ...judging import near as near
from .evidence import Evidence as Evidence
from .figure import Count as Count
from .figure import Epochs as Epochs
from .figure import Figure as Figure
from .figure import Part as Part
from .figure import Sizes as Sizes
from .figure import experiment as experiment
from .figure import phase_of as phase_of
from .figure import row as row
from .scenarios import baseline as baseline
from .scenarios import generalises as generalises
from .scenarios import scenario_one as scenario_one
from .scenarios import scenario_two as scenario_two
from .scenarios import unless_short as unless_short

__all__ = [
    "Count",
    "Epochs",
    "Evidence",
    "Figure",
    "Part",
    "Sizes",
    "above",
    "baseline",
    "below",
    "experiment",
    "generalises",
    "near",
    "phase_of",
    "row",
    "scenario_one",
    "scenario_two",
    "unless_short",
]
