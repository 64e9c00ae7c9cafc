"""Checks of options: each returns a plain Python value, or raises and says what is allowed."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError


def number(value: Any) -> float:
    """Return a real number, or a tensor of one, as a float; NaN for anything else.

    >>> number(torch.tensor(0.5)), number("0.5"), number(True)
    (0.5, nan, nan)
    """
    if isinstance(value, Tensor) and value.numel() == 1 and value.dtype != torch.bool:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        return float("nan")
    try:
        return float(value)
    except OverflowError:  # a whole number beyond 1e308
        return float("inf")


def not_negative(name: str, value: Any) -> float:
    """Return a finite number >= 0; refuse anything else.

    >>> not_negative("rho", -0.1)
    Traceback (most recent call last):
    flatlab.errors.UserError: rho must be a finite number >= 0, got -0.1
    """
    found = number(value)
    if not 0 <= found < float("inf"):
        raise UserError(f"{name} must be a finite number >= 0, got {value!r}")
    return found


def module(value: Any, remedy: str) -> nn.Module:
    """Return a network; refuse anything else, and say what to do."""
    if not isinstance(value, nn.Module):
        raise UserError(f"model must be a torch.nn.Module, got {type(value).__name__}: {remedy}")
    return value
