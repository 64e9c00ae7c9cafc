"""What an autograd graph reveals before it is differentiated."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def only_once(tensor: Tensor) -> str | None:
    """Return the name of a function on the way to a tensor that is marked `once_differentiable`.

    torch raises only if the gradient that such a function returned is differentiated itself.
    Otherwise, for example if the incoming gradient is constant, second derivatives are silently
    zero.
    """
    left, seen = [tensor.grad_fn], set()
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if _marked(getattr(node, "_forward_cls", None)):
            return str(node.name())
        left += [before for before, _ in node.next_functions]
    return None


def _marked(function: Any) -> bool:
    """Return whether a Function's backward is wrapped by torch's decorator."""
    backward = getattr(function, "backward", None)
    code = getattr(backward, "__code__", None)
    return hasattr(backward, "__wrapped__") and (
        code is not None and code.co_filename == torch.autograd.function.__file__
    )
