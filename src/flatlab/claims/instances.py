"""Random data sets, networks and interpolating networks that checks share."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from ..data import Dataset, from_arrays
from ..models import Chain, Params, TwoLayer
from ..theory.solution import Array, Solution


def random_data(rng: np.random.Generator, n: int, d: int) -> Dataset:
    """Return n Gaussian inputs with labels ±1."""
    return from_arrays(rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n))


def random_network(rng: np.random.Generator, arch: Chain, data: Dataset) -> Solution:
    """Return a network with independent Gaussian parameters."""
    params: Params = {
        name: rng.normal(size=shape) / math.sqrt(shape[-1])
        for name, shape in arch.shapes(data.d).items()
    }
    return Solution(arch, params, data)


def random_interpolator(rng: np.random.Generator, arch: TwoLayer, data: Dataset) -> Solution:
    """Return a two-layer network with a random first layer and the least W2 that interpolates."""
    made = random_network(rng, arch, data)
    W2, *_ = np.linalg.lstsq(made.hidden()[0], data.y_train, rcond=None)
    return made.with_params(W2=W2)


class Quadratic(nn.Module):
    """The function θ ↦ gᵀθ + ½θᵀHθ at θ = 0, as a model with a loss and data to measure."""

    data = (torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))

    def __init__(self, g: Array, H: Array):
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(len(g), dtype=torch.float64))
        self.g, self.H = torch.tensor(g), torch.tensor(H)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the value, once for each row of x."""
        value = self.g @ self.theta + self.theta @ self.H @ self.theta / 2
        return value.expand(len(x))

    @staticmethod
    def loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the value itself."""
        return outputs.mean()
