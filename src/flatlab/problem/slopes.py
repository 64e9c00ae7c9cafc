"""The derivative of every example's loss in its outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def slopes(loss: Any, outputs: Tensor, y: Tensor) -> Tensor:
    """Return u_i = ∂ℓ_i/∂f for every example; the mean loss of a batch has u_i / n_b."""
    outputs = outputs.detach().requires_grad_(True)
    with torch.enable_grad():
        (found,) = torch.autograd.grad(loss(outputs, y), outputs)
    return found * len(outputs)
