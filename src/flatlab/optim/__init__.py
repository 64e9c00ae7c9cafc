"""Torch optimizers, one algorithm a file."""

from .sam import SAM as SAM

__all__ = ["SAM"]
