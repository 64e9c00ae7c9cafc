"""The check that a loss is a mean over examples, which m-SAM needs because it splits batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError

Loss = Callable[[Any, Tensor], Tensor]


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


def check_mean(loss: Loss, output: Any, y: Tensor, m: int) -> None:
    """Refuse a loss whose value on a batch is not the mean of its values on groups of m examples.

    An example is a loss with class weights or an ignored label that divides by the total weight of
    the group: with m = 1 the weights cancel. A loss that is not finite, that draws random numbers,
    or whose output does not have one row for each example is not checked.

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
