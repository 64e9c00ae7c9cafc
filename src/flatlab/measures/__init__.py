"""Measures of flatness: each reads a number, its error and its definition off a problem."""

from .catalogue import CATALOGUE as CATALOGUE
from .catalogue import DEFAULT as DEFAULT
from .catalogue import named as named
from .contract import About as About
from .contract import Card as Card
from .contract import Measure as Measure
from .contract import Measured as Measured
from .contract import Reading as Reading
from .effort import Budget as Budget
from .effort import Effort as Effort
from .readings import Readings as Readings

__all__ = [
    "CATALOGUE",
    "DEFAULT",
    "About",
    "Budget",
    "Card",
    "Effort",
    "Measure",
    "Measured",
    "Reading",
    "Readings",
    "named",
]
