"""What an autograd graph reveals before it is differentiated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def only_once(tensor: Tensor) -> str | None:
    """Return the name of a function on the way to a tensor that is marked `once_differentiable`.

    torch raises only if the gradient that such a function returned is differentiated itself.
    Otherwise, for example if the incoming gradient is constant, second derivatives are silently
    zero.
    """
    for node in _nodes(tensor):
        if _marked(getattr(node, "_forward_cls", None)):
            return str(node.name())
    return None


def checkpointed(tensor: Tensor) -> bool:
    """Return whether a reentrant checkpoint is on the way to a tensor.

    The parameters inside are not in the graph: `torch.autograd.grad` raises, or takes them as
    unused.
    """
    return any(node.name() == "CheckpointFunctionBackward" for node in _nodes(tensor))


def leaves(tensor: Tensor) -> list[Tensor]:
    """Return the tensors that a backward pass from a tensor would give a gradient to."""
    found = [getattr(node, "variable", None) for node in _nodes(tensor)]
    return [leaf for leaf in found if isinstance(leaf, Tensor)]


def _nodes(tensor: Tensor) -> Iterator[Any]:
    """Yield every function on the way to a tensor once."""
    left: list[Any] = [tensor.grad_fn]
    seen = set()
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            left += [before for before, _ in node.next_functions]


def _marked(function: Any) -> bool:
    """Return whether a Function's backward is wrapped by torch's decorator."""
    backward = getattr(function, "backward", None)
    code = getattr(backward, "__code__", None)
    return hasattr(backward, "__wrapped__") and (
        code is not None and code.co_filename == torch.autograd.function.__file__
    )
