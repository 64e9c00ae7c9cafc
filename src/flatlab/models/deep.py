"""The deep ReLU network in torch: the meaning of `Deep`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .chains import Deep
from .contract import Params


class DeepNet(nn.Module):
    """f(x) = W_D relu(W_{D−1} ⋯ relu(W1 x + b1)), a bias in the first layer at most."""

    # Plain attributes: `get_parameter` refuses the tensors that torch.func puts in their place.
    W1: Tensor
    b1: Tensor

    def __init__(self, arch: Deep, params: Params):
        super().__init__()
        self.arch = arch
        for name, value in params.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(value)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs, of shape (examples,)."""
        bias = self.b1 if self.arch.bias_first else None
        u = torch.relu(nn.functional.linear(x, self.W1, bias))
        for layer in range(2, self.arch.depth):
            u = torch.relu(nn.functional.linear(u, getattr(self, f"W{layer}")))
        last: Tensor = getattr(self, f"W{self.arch.depth}")
        return u @ last
