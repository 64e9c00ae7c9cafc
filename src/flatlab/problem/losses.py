"""The user's loss in any accepted form → a callable, its value and its derivatives in f."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import FAILURES, FlatlabError, UserError, described, message_of
from ..losses import Loss, as_loss
from ..randomness import generator

# Errors that torch raises if tensors do not fit; torch's message says enough.
TORCHS = (RuntimeError, ValueError, IndexError, TypeError, AssertionError, UserWarning)
# Packages whose code is not the user's own.
PACKAGES = ("torch", "curvlinops", __name__.partition(".")[0])
# A second derivative below this, relative to the first, is rounding.
TOLERANCE = 1e-12
# Number of random outputs at which a loss is looked at, and the residuals next to the labels.
POINTS, NEAR = 4, 1e-4


def loss_of(loss: Any) -> tuple[Any, str]:
    """Return the loss as a callable and its name on cards."""
    if isinstance(loss, str | Loss):
        made = as_loss(loss)
        return made.function(), made.name
    for wrapped in ("_orig_mod", "_torchdynamo_orig_callable"):  # a loss that torch.compile made
        loss = getattr(loss, wrapped, loss)
    if isinstance(loss, type):
        raise UserError(f"loss is a class: write {loss.__name__}()")
    if not callable(loss):
        raise UserError(f"loss must be a callable (outputs, y) -> mean, or a name, got {loss!r}")
    if getattr(loss, "reduction", "mean") not in ("mean", "batchmean"):
        raise UserError(
            f"loss has reduction={loss.reduction!r}: measures are of the mean loss, use 'mean'"
        )
    name = getattr(loss, "__name__", type(loss).__name__)
    if isinstance(loss, nn.SoftMarginLoss) or loss is nn.functional.soft_margin_loss:
        return _soft_margin, name
    return loss, name


def _soft_margin(outputs: Tensor, y: Tensor) -> Tensor:
    """Return mean log(1 + exp(−y f)); torch's own has no forward mode, and overflows."""
    return -nn.functional.logsigmoid(y * outputs).mean()


def evaluate(loss: Any, name: str, outputs: Tensor, y: Tensor) -> Tensor:
    """Return the loss of a batch, a scalar; the name is for the message if it fails."""
    given = f"outputs {tuple(outputs.shape)} and labels {tuple(y.shape)} ({y.dtype})"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # mse_loss warns when shapes broadcast
            value: Any = loss(outputs, y)
    except FlatlabError:  # it already says what is wrong
        raise
    except FAILURES as error:
        raise UserError(f"the loss {name} failed on {given}: {first_line(error)}") from error
    if not isinstance(value, Tensor):
        raise UserError(
            f"the loss {name} returned {type(value).__name__}, it must return a torch scalar, the "
            "mean over the batch (without .item())"
        )
    if not (value.is_floating_point() or value.is_complex()):
        raise UserError(
            f"the loss {name} returned {value.dtype}, it must return a number that depends on the "
            "outputs smoothly: leave out comparisons, round() and argmax()"
        )
    if value.ndim != 0:
        raise UserError(
            f"the loss returned shape {tuple(value.shape)}, it must be a scalar mean over the "
            "batch: use reduction='mean'"
        )
    return value


def doubled(loss: Any) -> Any:
    """Return the loss with its own numbers in float64: itself, or a copy of a module."""
    if not isinstance(loss, nn.Module):
        return loss
    own = [part for part in (*loss.parameters(), *loss.buffers()) if part.is_floating_point()]
    return copy.deepcopy(loss).double() if any(p.dtype != torch.float64 for p in own) else loss


def raised(loss: Any, outputs: Tensor, y: Tensor) -> tuple[Any, Tensor, Tensor]:
    """Return loss, outputs and labels in float64 if the loss accepts that, else as they are.

    Near a minimum a loss and its derivatives are small differences of large numbers, such as 1 − p
    for softmax; float32 outputs carry them, float32 arithmetic on the outputs loses them.
    """
    if not outputs.is_floating_point() or outputs.dtype == torch.float64:
        return loss, outputs, y
    wide, labels = outputs.double(), y.double() if y.is_floating_point() else y
    try:
        double = doubled(loss)
        with torch.no_grad():
            accepted = bool(torch.isfinite(evaluate(double, "", wide, labels)))
    except (FlatlabError, RuntimeError, TypeError):
        accepted = False
    return (double, wide, labels) if accepted else (loss, outputs, y)


def first_line(error: BaseException) -> str:
    """Return the first line of torch's message; for errors in the user's own code, its place."""
    if isinstance(error, TORCHS) and _package(error) in PACKAGES:
        return message_of(error).strip().partition("\n")[0] or type(error).__name__
    return described(error)


def _package(error: BaseException) -> str:
    """Return the package whose code raised an error."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    name = "torch" if last is None else last.tb_frame.f_globals.get("__name__", "")
    return str(name).partition(".")[0]


def slopes(loss: Any, outputs: Tensor, y: Tensor) -> Tensor:
    """Return u_i = ∂ℓ_i/∂f for every example, in float64 if the loss accepts that.

    The mean loss of a batch has the derivative u_i / n_b.
    """
    loss, outputs, y = raised(loss, outputs.detach(), y)
    outputs = outputs.detach().requires_grad_(True)
    with torch.enable_grad():
        (found,) = torch.autograd.grad(loss(outputs, y), outputs)
    return found * len(outputs)


def require_bent(loss: Any, name: str, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Raise if the loss is linear in the outputs, so that its Gauss–Newton matrix is zero.

    A loss that is curved elsewhere is not refused: where its second derivative vanishes at the
    model's outputs, as that of softmax far out or of Huber's loss, zero is an answer.
    """
    for f, y in pairs:
        if _bent(loss, f, y) is not False or any(_bent(loss, g, y) for g in _elsewhere(f, y)):
            return
    way_out = (
        "end the model before log_softmax and use CrossEntropyLoss"
        if loss is nn.functional.nll_loss or isinstance(loss, nn.NLLLoss)
        else "measure the Hessian or the Gram matrix instead"
    )
    raise UserError(
        f"the loss {name} is linear in the model's outputs, so its Gauss–Newton matrix is zero by "
        f"definition and says nothing about the model: {way_out}"
    )


def _elsewhere(f: Tensor, y: Tensor) -> Iterator[Tensor]:
    """Yield random outputs, and outputs next to the labels."""
    for k in range(POINTS):
        normal = torch.as_tensor(generator(0, "outputs", k).normal(size=tuple(f.shape))).to(f)
        yield normal
        if y.shape == f.shape and y.is_floating_point():
            yield y + NEAR * normal


def _bent(loss: Any, outputs: Tensor, y: Tensor) -> bool | None:
    """Return whether the second derivative along a random direction is not zero; None if none."""
    loss, outputs, y = raised(loss, outputs.detach(), y)
    outputs = outputs.requires_grad_(True)
    v = torch.as_tensor(generator(0, "direction").normal(size=tuple(outputs.shape))).to(outputs)
    try:
        with torch.enable_grad():
            value = evaluate(loss, "", outputs, y)
            (first,) = torch.autograd.grad(value, outputs, create_graph=True)
            along = (first * v).sum()
            if not along.requires_grad:
                return False
            (second,) = torch.autograd.grad(along, outputs, materialize_grads=True)
    except (FlatlabError, RuntimeError):  # not for such outputs, or without a second derivative
        return None
    slope = float((first.detach() * v).abs().sum())
    return float((second * v).abs().sum()) > TOLERANCE * slope
