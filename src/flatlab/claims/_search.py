"""Instances for checks: random networks, and networks that make a ratio as small as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..models import Chain
from ..theory.solution import Array, Solution


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
