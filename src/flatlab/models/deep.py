"""The deep ReLU network in torch: the meaning of `Deep`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .spec import Deep, Params


class DeepNet(nn.Module):
    """f(x) = W_D relu(W_{D−1} ⋯ relu(W1 x + b1)), a bias in the first layer at most."""

    def __init__(self, arch: Deep, params: Params):
        super().__init__()
        self.arch = arch
        for name, value in params.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(value)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs, of shape (examples,)."""
        bias = self.get_parameter("b1") if self.arch.bias_first else None
        u = torch.relu(nn.functional.linear(x, self.get_parameter("W1"), bias))
        for layer in range(2, self.arch.depth):
            u = torch.relu(nn.functional.linear(u, self.get_parameter(f"W{layer}")))
        return u @ self.get_parameter(f"W{self.arch.depth}")
