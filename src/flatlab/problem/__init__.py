"""A model, a loss and data as one function of the parameters, and its derivatives."""

from .operators import Matrix as Matrix
from .problem import MODES as MODES
from .problem import Problem as Problem

__all__ = ["MODES", "Matrix", "Problem"]
