"""The oracle: dense derivatives of a small network by torch autograd, in float64.

Nothing here is clever. Every closed form and every estimate of the library is held against it.
Simplified BatchNorm takes its statistics from the training inputs and the parameters, inside the
forward pass, so differentiating the outputs differentiates the statistics too.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.func import functional_call, jacrev

from flatlab.data import Dataset
from flatlab.losses import Loss
from flatlab.models import Architecture, Params, build

Array = np.ndarray


def hessian(f):
    """Return the second derivative, reverse over reverse.

    `torch.func.hessian` goes forward over reverse, whose decompositions still use the deprecated
    torch.jit and warn; the numbers are the same.
    """
    return jacrev(jacrev(f))


def flatten(params: Params) -> torch.Tensor:
    """Return all parameters as one float64 vector, in storage order."""
    return torch.cat([torch.tensor(np.asarray(p, np.float64)).ravel() for p in params.values()])


def outputs_of(arch: Architecture, params: Params, data: Dataset, x: Array):
    """Return θ ↦ f(x; θ), from the vector of all parameters to the vector of outputs."""
    net = build(arch, {k: np.asarray(p, np.float64) for k, p in params.items()}, data.x_train)
    inputs = torch.tensor(np.asarray(x, np.float64))
    sizes = [p.size for p in params.values()]

    def f(theta: torch.Tensor) -> torch.Tensor:
        parts = theta.split(sizes)
        named = {
            name: part.view(np.shape(p))
            for (name, p), part in zip(params.items(), parts, strict=True)
        }
        return functional_call(net, named, (inputs,))

    return f


def outputs(arch: Architecture, params: Params, data: Dataset, x: Array | None = None) -> Array:
    """Return f at x, by default at the training inputs."""
    f = outputs_of(arch, params, data, data.x_train if x is None else x)
    return f(flatten(params)).numpy(force=True)


def jacobian(arch: Architecture, params: Params, data: Dataset) -> Array:
    """Return ∇f at the training inputs, of shape (examples, parameters)."""
    return jacrev(outputs_of(arch, params, data, data.x_train))(flatten(params)).numpy(force=True)


def output_hessians(arch: Architecture, params: Params, data: Dataset) -> Array:
    """Return ∇²f at the training inputs, of shape (examples, parameters, parameters)."""
    return hessian(outputs_of(arch, params, data, data.x_train))(flatten(params)).numpy(force=True)


def loss_hessian(arch: Architecture, params: Params, loss: Loss, data: Dataset) -> Array:
    """Return the full Hessian ∇²L of the mean training loss over all parameters."""
    f = outputs_of(arch, params, data, data.x_train)
    y = torch.tensor(data.y_train)
    return hessian(lambda theta: loss.torch(f(theta), y))(flatten(params)).numpy(force=True)


def ggn(arch: Architecture, params: Params, loss: Loss, data: Dataset) -> Array:
    """Return the Gauss–Newton part Jᵀ (∂²L/∂f²) J of the Hessian."""
    J = jacobian(arch, params, data)
    y = torch.tensor(data.y_train)
    f = torch.tensor(outputs(arch, params, data))
    return J.T @ hessian(lambda out: loss.torch(out, y))(f).numpy() @ J


def columns_of(params: Params, name: str) -> slice:
    """Return where a named parameter stands in the vector of all of them."""
    start = 0
    for key, value in params.items():
        if key == name:
            return slice(start, start + value.size)
        start += value.size
    raise KeyError(name)
