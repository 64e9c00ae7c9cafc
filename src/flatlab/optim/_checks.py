"""Checks of what a user gives: each returns a plain value, or raises and says what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError

LossFunction = Callable[[Any, Tensor], Tensor]


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


def scalar(loss: Any) -> Tensor:
    """Return the value of a loss; refuse anything but a scalar tensor."""
    if not isinstance(loss, Tensor):
        raise UserError(
            f"loss must return a scalar tensor, got {type(loss).__name__}: "
            "compute it from the output by torch functions"
        )
    if loss.ndim:
        raise UserError(
            f"loss must return a scalar, got shape {tuple(loss.shape)}: take the mean over examples"
        )
    return loss


def check_mean(loss: LossFunction, output: Any, y: Tensor, m: int) -> None:
    """Refuse a loss whose value on a batch is not the mean of its values on groups of m examples.

    m-SAM splits batches, so it needs a mean. A loss with class weights or an ignored label is none
    if it divides by the total weight of the group: with m = 1 the weights cancel. A loss that is
    not finite, that draws random numbers, or whose output does not have one row for each example is
    not checked.

    >>> f, y = torch.tensor([1.0, 2.0]), torch.zeros(2)
    >>> check_mean(lambda f, y: (f - y).square().mean(), f, y, 1)
    >>> check_mean(lambda f, y: (f - y).square().sum(), f, y, 1)
    Traceback (most recent call last):
    flatlab.errors.UserError: loss must be the mean over its examples, got 5 on a batch and 2.5 ...
    """
    n = len(y)
    if not isinstance(output, Tensor) or output.ndim == 0 or len(output) != n:
        return
    whole, again = (scalar(loss(output, y)).detach() for _ in range(2))
    if not (whole.is_floating_point() and torch.isfinite(whole) and torch.equal(whole, again)):
        return
    mean = size = 0.0
    for first in range(0, n, m):
        rows = slice(first, first + m)
        part = float(scalar(loss(output[rows], y[rows])).detach())
        mean += len(y[rows]) / n * part
        size += len(y[rows]) / n * abs(part)
    # The same outputs in another order of summation differ by a few eps of their size.
    tolerance = torch.finfo(whole.dtype).eps ** 0.5 * max(abs(float(whole)), size)
    if not abs(mean - float(whole)) <= tolerance:
        raise UserError(
            f"loss must be the mean over its examples, got {float(whole):.6g} on a batch and "
            f"{mean:.6g} as the mean of its groups of {m}: weight examples before the mean, "
            "(w[y] * cross_entropy(output, y, reduction='none')).mean()"
        )
