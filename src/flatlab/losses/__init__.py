"""Losses: one spec each, with the labels it takes and its form in torch."""

from .contract import LABELS, LOSSES, Loss, as_loss
from .cross_entropy import CrossEntropy
from .logistic import Logistic
from .squared import MSE, HalfMSE, TruncatedMSE

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
