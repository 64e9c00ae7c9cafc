"""The user's loss in any accepted form → a callable, and its value on a batch."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn

from ..errors import FlatlabError, UserError, described
from ..losses import CrossEntropy, Loss, as_loss

# Errors that torch raises if tensors do not fit; torch's message says enough.
TORCHS = (RuntimeError, ValueError, IndexError, TypeError, AssertionError, UserWarning)


def loss_of(loss: Any) -> tuple[Any, str]:
    """Return the loss as a callable and its name on cards."""
    if isinstance(loss, str | Loss):
        made = as_loss(loss)
        if isinstance(made, CrossEntropy):  # torch's own, whose labels are checked by class
            return nn.CrossEntropyLoss(label_smoothing=made.smoothing), made.name
        return made.torch, made.name
    if not callable(loss):
        raise UserError(f"loss must be a callable (outputs, y) -> mean, or a name, got {loss!r}")
    if getattr(loss, "reduction", "mean") != "mean":
        raise UserError(
            f"loss has reduction={loss.reduction!r}: measures are of the mean loss, use 'mean'"
        )
    return loss, getattr(loss, "__name__", type(loss).__name__)


def evaluate(loss: Any, name: str, outputs: Tensor, y: Tensor) -> Tensor:
    """Return the loss of a batch, a scalar; the name is for the message if it fails."""
    given = f"outputs {tuple(outputs.shape)} and labels {tuple(y.shape)} ({y.dtype})"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # mse_loss warns when shapes broadcast
            value: Any = loss(outputs, y)
    except FlatlabError:  # it already says what is wrong
        raise
    except Exception as error:
        raise UserError(f"the loss {name} failed on {given}: {first_line(error)}") from error
    if not isinstance(value, Tensor):
        raise UserError(
            f"the loss {name} returned {type(value).__name__}, it must return a torch scalar, the "
            "mean over the batch (without .item())"
        )
    if value.ndim != 0:
        raise UserError(
            f"the loss returned shape {tuple(value.shape)}, it must be a scalar mean over the "
            "batch: use reduction='mean'"
        )
    return value


def first_line(error: BaseException) -> str:
    """Return an error's message in one line; for errors not raised by torch, with the place."""
    if isinstance(error, TORCHS):
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return described(error)
