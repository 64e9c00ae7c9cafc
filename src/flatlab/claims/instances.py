"""Data sets and networks that checks share: random, interpolating, or the worst for a ratio."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from ..data import Dataset, from_arrays
from ..measures import Effort, Measure, Measured
from ..models import Chain, Params, TwoLayer
from ..problem import Problem
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


def random_networks(
    arch: Chain, data: Dataset, rng: np.random.Generator, count: int
) -> Iterator[Solution]:
    """Yield networks with Gaussian parameters, each layer scaled by a factor of 1/10 to 10."""
    for _ in range(count):
        params = {
            name: rng.normal(size=shape) * 10 ** rng.uniform(-1, 1)
            for name, shape in arch.shapes(data.d).items()
        }
        yield Solution(arch, params, data)


def lowest(
    start: Solution, ratio: Callable[[Tensor, Tensor, Tensor], Tensor], steps: int = 300
) -> float:
    """Return the least value found of a ratio of (‖∇f(x)‖², f(x), x), by Adam on all parameters.

    If the data of `start` has several points, the mean over them is minimised.
    """
    module = start.module
    x = torch.tensor(start.data.x_train)
    params = [p.requires_grad_(True) for p in module.parameters()]
    optimizer = torch.optim.Adam(params, lr=0.03)
    best = np.inf
    for _ in range(steps):
        total = torch.zeros((), dtype=torch.float64)
        for point in x:
            f = module(point[None])[0]
            grads = torch.autograd.grad(f, params, create_graph=True, materialize_grads=True)
            squared = torch.stack([g.square().sum() for g in grads]).sum()
            total = total + ratio(squared, f, point) / len(x)
        if not torch.isfinite(total):
            break
        best = min(best, float(total.detach()))
        for p, g in zip(
            params, torch.autograd.grad(total, params, materialize_grads=True), strict=True
        ):
            p.grad = g
        optimizer.step()
    return best


def point_norms(x: Array) -> Array:
    """Return ‖x'_i‖ with x' = (x, 1)."""
    norms: Array = np.sqrt(np.sum(x**2, 1) + 1)
    return norms


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

    def forward(self, x: Tensor) -> Tensor:
        """Return the value, once for each row of x."""
        value = self.g @ self.theta + self.theta @ self.H @ self.theta / 2
        return value.expand(len(x))

    @staticmethod
    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        """Return the value itself."""
        return outputs.mean()


def measured(measure: Measure, of: Solution | Quadratic, seed: int = 0) -> Measured:
    """Measure a network with the squared error on its data, or a quadratic function."""
    if isinstance(of, Quadratic):
        return measure.read(Problem(of, of.loss, of.data), Effort(seed))
    return measure.read(Problem(of.module, "mse", of.data), Effort(seed))


def reading(measure: Measure, of: Solution | Quadratic, seed: int = 0) -> float:
    """Return the measured number alone."""
    return float(measured(measure, of, seed).value)
