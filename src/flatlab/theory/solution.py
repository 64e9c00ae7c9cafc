"""A network with a data set, in float64: its outputs, gradients, loss, trace and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data import Dataset
from ..data.dataset import Array as Array
from ..losses import Loss, as_loss
from ..models import Chain, Params, build
from ..models.chains import activated

if TYPE_CHECKING:  # slow to import, and not needed to list the networks
    from torch import Tensor, nn


@dataclass(frozen=True)
class Solution:
    """Parameters of a model that is to solve a data set.

    Simplified BatchNorm takes its statistics from the training part of the data.
    """

    arch: Chain
    params: Mapping[str, NDArray[np.floating[Any]]]
    data: Dataset

    def __repr__(self) -> str:
        return f"Solution({self.arch.describe()} on {self.data.name})"

    @cached_property
    def module(self) -> nn.Module:
        """The torch network, in float64."""
        params: Params = {k: np.asarray(value, np.float64) for k, value in self.params.items()}
        return build(self.arch, params, self.data.x_train)

    def outputs(self, x: ArrayLike | None = None) -> Array:
        """Return f(x), on the training inputs unless others are given."""
        import torch

        with torch.no_grad():
            return np.asarray(self.module(self._inputs(x)))

    def hidden(self, x: ArrayLike | None = None) -> list[Array]:
        """Return the activations of every hidden layer, before any normalisation, (n, width)."""
        u = self.data.x_train if x is None else np.asarray(x, np.float64)
        layers = [name for name in self.params if name.startswith("W")][:-1]
        found = []
        for name in layers:
            h = u @ self.params[name].T + (self.params.get("b1", 0.0) if name == "W1" else 0.0)
            u = activated(self.arch, h)
            found.append(u)
        return found

    def gradients(self, x: ArrayLike | None = None) -> Array:
        """Return ∇_θ f(x_i) over all parameters by autograd, (n, parameters)."""
        import torch

        params = dict(self.module.named_parameters())
        buffers = dict(self.module.named_buffers())

        def output(values: dict[str, Tensor], point: Tensor) -> Tensor:
            every = {**values, **buffers}
            made: Tensor = torch.func.functional_call(self.module, every, (point[None],))
            return made[0]

        each = torch.func.vmap(torch.func.grad(output), (None, 0), chunk_size=256)
        parts = each({name: p.detach() for name, p in params.items()}, self._inputs(x))
        flat = [np.asarray(part).reshape(len(part), -1) for part in parts.values()]
        return np.concatenate(flat, 1)

    @property
    def trace(self) -> float:
        """(2/n) Σ ‖∇f(x_i)‖², which is Tr ∇²L of L = (1/n) Σ (f − y)² where f = y."""
        return float(2 * np.mean(np.sum(self.gradients() ** 2, 1)))

    def hessian(self, loss: Loss | str = "mse") -> Array:
        """Return the dense Hessian of the training loss, for a few hundred parameters."""
        import torch

        params = {name: p.detach() for name, p in self.module.named_parameters()}
        sizes = [p.numel() for p in params.values()]
        y, x = torch.tensor(self.data.y_train), self._inputs(None)
        buffers = dict(self.module.named_buffers())

        def value(theta: Tensor) -> Tensor:
            parts = zip(params.items(), torch.split(theta, sizes), strict=True)
            shaped = {name: part.view_as(p) for (name, p), part in parts}
            f: Tensor = torch.func.functional_call(self.module, {**shaped, **buffers}, (x,))
            return as_loss(loss).torch(f, y)

        theta = torch.cat([p.flatten() for p in params.values()])
        hessian = torch.autograd.functional.hessian  # forward mode would warn
        return np.asarray(hessian(value, theta))  # type: ignore[no-untyped-call]

    def loss(self, loss: Loss | str = "mse") -> float:
        """Return the mean loss on the training set."""
        values, *_ = as_loss(loss).values(self.outputs(), self.data.y_train)
        return float(values.mean())

    def error(self, x: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
        """Return the share of points with y f(x) ≤ 0, on the test set unless points are given."""
        x, y = (self.data.x_test, self.data.y_test) if x is None else (x, np.asarray(y))
        return float(np.mean(self.outputs(x) * y <= 0))

    def test_loss(self, x: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
        """Return the mean of (f − y)², on the test set unless points are given."""
        x, y = (self.data.x_test, self.data.y_test) if x is None else (x, np.asarray(y))
        return float(np.mean((self.outputs(x) - y) ** 2))

    def with_params(self, **params: Any) -> Solution:
        """Return the same with some parameters changed."""
        return Solution(self.arch, {**self.params, **params}, self.data)

    def _inputs(self, x: ArrayLike | None) -> Tensor:
        import torch

        return torch.tensor(self.data.x_train if x is None else np.asarray(x, np.float64))
