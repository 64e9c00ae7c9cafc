"""Checks that the loss is a mean over examples, finite on each, and the same whenever computed.

Measures are of L = (1/n) Σ ℓ_i. A loss that weighs or couples the examples of a batch is another
function, and depends on how the data is split into batches. The loss is checked on fixed outputs,
so models that couple examples, as BatchNorm does in training, are allowed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..losses import Loss, as_loss
from .batches import Batch, drawn
from .graph import leaves
from .losses import evaluate, raised

# Number of examples whose single losses are compared with the loss of all of them.
ROWS = 8
# Rounding allowed to a loss that works in float32 inside, relative to the largest part.
TOLERANCE = 1e-5
# Two passes of one kind over one batch run the same kernels, so they agree to the last bit, or (on
# a GPU) up to the order of sums. Rounding of a sum of N terms grows like √N: enough for 2¹⁶ terms.
ORDER = 256
Pairs = Sequence[tuple[Tensor, Tensor]]  # the outputs and labels of every batch

WEIGHTED = (
    "for class weights w use lambda o, y: (w[y] * cross_entropy(o, y, reduction='none')).mean()"
)


def takes_classes(loss: Any) -> bool:
    """Return whether a loss is known to take class indices along axis 1 of the outputs."""
    known = (nn.functional.cross_entropy, nn.functional.nll_loss)
    return any(loss is each for each in known) or isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss)


def require_signs(loss: Any, batches: Sequence[Batch]) -> None:
    """Refuse labels 0 and 1, or beyond ±1, for a loss of flatlab whose labels are signs."""
    made = as_loss(loss) if isinstance(loss, str | Loss) else None
    if made is not None and made.labels == "signs":
        labels = torch.cat([y.detach().flatten().cpu() for _, y in batches]).double().numpy()
        if refused := made.refusal(labels, None):
            raise UserError(refused)


def require_labels(loss: Any, pairs: Pairs) -> None:
    """Raise if a class label names no output, or if the loss leaves examples out.

    For such labels torch itself may read out of bounds. Losses other than torch's are not checked:
    their integers may mean anything.
    """
    if not takes_classes(loss):
        return
    ignored = getattr(loss, "ignore_index", -100)
    for f, y in pairs:
        if f.ndim >= 2 and f.shape[1] == 1:
            raise UserError(
                "a loss of classes needs an output for each class, got 1, whose softmax is always "
                "1: give the model more outputs, or use 'logistic' with labels -1 and 1"
            )
        if f.ndim < 2 or y.is_floating_point() or y.shape != f.shape[:1] + f.shape[2:]:
            return  # class probabilities, or labels that the loss itself refuses
        if bool((y == ignored).any()):
            raise UserError(
                f"some labels are ignore_index={ignored}, which the loss leaves out, so that it is "
                "not a mean over examples: leave these examples out of the data"
            )
        low, high = int(y.min()), int(y.max())
        if not 0 <= low <= high < f.shape[1]:
            raise UserError(
                f"labels lie between {low} and {high}, the model has outputs 0 to "
                f"{f.shape[1] - 1}: number the classes from 0, or give the model more outputs"
            )
    weight = getattr(loss, "weight", None)
    if weight is not None:
        used = weight[torch.cat([y.flatten() for _, y in pairs]).to(weight.device)]
        if bool((used != used[0]).any()):
            raise UserError(
                "the loss has class weights and divides by their sum over the batch, so that it is "
                f"not a mean over examples: {WEIGHTED}"
            )


def require_finite(loss: Any, name: str, pairs: Pairs) -> None:
    """Raise if the loss of a batch is not finite, and name the example."""
    start = 0
    for k, (f, y) in enumerate(pairs):
        value = evaluate(loss, name, f, y)
        if not bool(torch.isfinite(value)):
            where = f"batch {k} (examples {start} to {start + len(f) - 1})"
            with contextlib.suppress(UserError):  # a loss that takes no single row
                for i in range(len(f)):
                    each = evaluate(loss, name, f[i : i + 1], y[i : i + 1])
                    if not bool(torch.isfinite(each)):
                        size = float(f[i].abs().max())
                        where = f"example {start + i} (largest output in size: {size:g})"
                        break
            raise UserError(
                f"the loss is {float(value)} on {where}: there is nothing to measure. Look at the "
                "model's buffers and at this example, or take weights from before it diverged"
            )
        start += len(f)


def require_copied(outputs: Tensor, known: Mapping[str, Tensor]) -> None:
    """Raise if the copy's outputs depend on parameters of the user's own model."""
    names = _named(leaves(outputs), known)
    if names:
        raise UserError(
            f"a copy of the model still uses parameters of the original ({_few(names)}): a forward "
            "or a hook refers to the original by a closure. Let it use the module that it is given"
        )


def require_outputs_only(
    name: str, value: Tensor, outputs: Tensor, known: Mapping[str, Tensor]
) -> None:
    """Raise if a loss depends on trainable tensors besides the outputs it was computed from.

    θ acts on L through the outputs alone, so the curvature of a penalty on the weights inside the
    loss would be left out.
    """
    others = [leaf for leaf in leaves(value) if leaf is not outputs]
    if not others:
        return
    names = _named(others, known)
    if names:
        raise UserError(
            f"the loss {name} uses parameters of the model ({_few(names)}) besides its outputs,"
            " so that their curvature would be left out: let the model return the penalty as one "
            "more output (docs/measures.md), or leave it out of the loss and add its Hessian to "
            "the result, which is λ times the identity for ½λ‖θ‖²"
        )
    shapes = [str(tuple(leaf.shape)) for leaf in others]
    raise UserError(
        f"the loss {name} has trainable tensors of its own (of shape {_few(shapes)}), so that their"
        " curvature would be left out: make them part of the model, or fix them with "
        "requires_grad_(False)"
    )


def _named(tensors: Sequence[Tensor], known: Mapping[str, Tensor]) -> list[str]:
    given = {id(tensor) for tensor in tensors}
    return [name for name, p in known.items() if id(p) in given]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


def require_same(what: str, first: Tensor, second: Tensor, advice: str) -> None:
    """Raise if two passes of one kind differ by more than rounding of their largest numbers."""
    if not first.is_floating_point() and not first.is_complex():
        first, second = first.double(), second.double()
    size = float(first.abs().max())
    apart = float((first - second).abs().max()) if first.shape == second.shape else math.inf
    if not apart <= ORDER * torch.finfo(first.dtype).eps * size:
        raise UserError(
            f"the {what} is not deterministic: two passes over one batch differ by {apart:.3g}, "
            f"where the largest number is {size:.3g}: {advice}"
        )


def require_mean(loss: Any, name: str, pairs: Pairs) -> None:
    """Raise if the loss of some examples is not the mean of the losses of their parts.

    Every batch is compared with its halves, and a few random examples of all batches with each
    example alone.
    """
    for f, y in pairs:
        if len(f) > 1:
            _compare(loss, name, f, y, (len(f) + 1) // 2)
    for f, y in drawn(pairs, ROWS, 0, "meaning"):
        if len(f) > 1:
            _compare(loss, name, f, y, 1)


def _compare(loss: Any, name: str, f: Tensor, y: Tensor, size: int) -> None:
    loss, f, y = raised(loss, f, y)
    whole = evaluate(loss, name, f, y)
    pieces = list(zip(torch.split(f, size), torch.split(y, size), strict=True))
    try:
        parts = torch.stack([evaluate(loss, name, *piece) for piece in pieces])
    except UserError as error:
        if size == 1:  # squeeze() and the like: single rows cannot be asked
            if len(f) > 2:
                _compare(loss, name, f, y, 2)
            return
        raise UserError(
            f"the loss {name} takes {len(f)} examples but not {size}: it must be a mean over "
            f"examples, whatever their number. {error}"
        ) from None
    weights = parts.new_tensor([len(piece[0]) / len(f) for piece in pieces])
    mean = (parts * weights).sum()
    eps = max(torch.finfo(part.dtype).eps for part in (f, whole))
    size_of = [f, y] if y.is_floating_point() else [f]
    scale = parts.abs().max() + max(float(part.detach().abs().max()) for part in size_of)
    if not bool((whole - mean).abs() <= TOLERANCE * parts.abs().max() + 64 * eps * scale):
        raise UserError(
            f"the loss {name} is not a mean over examples: {len(f)} of them have {float(whole):.6g}"
            f", the mean of {'each alone' if size == 1 else f'{size} at a time'} is "
            f"{float(mean):.6g}. Divide a sum by the number of examples; {WEIGHTED}; leave "
            "examples out of the data instead of ignoring their labels"
        )
