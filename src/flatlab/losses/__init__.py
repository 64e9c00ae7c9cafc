"""Losses: one spec each, with the labels it takes and its form in torch."""

from .contract import LABELS as LABELS
from .contract import LOSSES as LOSSES
from .contract import Array as Array
from .contract import Loss as Loss
from .contract import as_loss as as_loss
from .cross_entropy import CrossEntropy as CrossEntropy
from .logistic import Logistic as Logistic
from .squared import MSE as MSE
from .squared import HalfMSE as HalfMSE
from .squared import TruncatedMSE as TruncatedMSE

__all__ = [
    "LABELS",
    "LOSSES",
    "MSE",
    "CrossEntropy",
    "HalfMSE",
    "Logistic",
    "Loss",
    "TruncatedMSE",
    "as_loss",
]
