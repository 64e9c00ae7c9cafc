"""Data sets and networks that checks share: random, interpolating, or the worst for a ratio."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ..data import Dataset, cube, from_arrays
from ..measures import Effort, Measure, Measured
from ..models import Chain, Params, TwoLayer
from ..problem import Problem
from ..theory.solution import Array, Solution


def random_data(rng: np.random.Generator, n: int, d: int) -> Dataset:
    """Return n Gaussian inputs with labels ±1."""
    return from_arrays(rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n))


def random_network(rng: np.random.Generator, arch: Chain, data: Dataset) -> Solution:
    """Return a network with independent Gaussian parameters."""
    shapes = arch.shapes(data.d)
    params: Params = {k: rng.normal(size=s) / math.sqrt(s[-1]) for k, s in shapes.items()}
    return Solution(arch, params, data)


def random_networks(
    arch: Chain, data: Dataset, rng: np.random.Generator, count: int
) -> Iterator[Solution]:
    """Yield networks with Gaussian parameters, each layer scaled by a factor of 1/10 to 10."""
    shapes = arch.shapes(data.d)
    for _ in range(count):
        params = {k: rng.normal(size=s) * 10 ** rng.uniform(-1, 1) for k, s in shapes.items()}
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
        slopes = torch.autograd.grad(total, params, materialize_grads=True)
        for p, g in zip(params, slopes, strict=True):
            p.grad = g
        optimizer.step()
    return best


def cube_errors(solution: Solution) -> Array:
    """Return f − x1·x2 on the whole cube."""
    x = cube(solution.data.d)
    return solution.outputs(x) - x[:, 0] * x[:, 1]


def first_layer_times(K: float, solution: Solution) -> Solution:
    """Return the network with W1 and b1 multiplied by K."""
    params = solution.params
    return solution.with_params(W1=K * params["W1"], b1=K * params["b1"])


def with_idle(made: Solution, W1: ArrayLike, b1: float, gamma: float) -> Solution:
    """Return a network with BatchNorm whose neurons from the fifth on are live, with W2 = 0."""
    params = {name: np.array(made.params[name]) for name in ("W1", "b1", "W2", "gamma")}
    params["W1"][4:], params["b1"][4:], params["W2"][4:], params["gamma"][4:] = W1, b1, 0.0, gamma
    return made.with_params(**params)


def nearest_kink(solution: Solution) -> float:
    """Return the least |w_j·x_i + b_j| of a first-layer neuron at a training point."""
    h = solution.data.x_train @ solution.params["W1"].T + solution.params["b1"]
    return float(np.abs(h).min())


def point_norms(x: Array) -> Array:
    """Return ‖x'_i‖ with x' = (x, 1)."""
    return np.asarray(np.sqrt(np.sum(x**2, 1) + 1))


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


def measured(
    measure: Measure, of: Solution | Quadratic, seed: int = 0, loss: str = "mse"
) -> Measured:
    """Measure a network with a loss on its data, or a quadratic function."""
    if isinstance(of, Quadratic):
        return measure.read(Problem(of, of.loss, of.data), Effort(seed))
    return measure.read(Problem(of.module, loss, of.data), Effort(seed))


def reading(measure: Measure, of: Solution | Quadratic, seed: int = 0, loss: str = "mse") -> float:
    """Return the measured number alone."""
    return float(measured(measure, of, seed, loss).value)
