"""The curvature of the loss along its own gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from .kernels import require_numbers_of, worded
from .operators import BACKWARD, gradients
from .problem import Problem


def along_gradient(problem: Problem) -> tuple[float, float]:
    """Return ‖∇L‖ and uᵀ∇²L u with u = ∇L/‖∇L‖; two zeros where the gradient is zero.

    For one batch the graph of the gradient is made once and serves both.
    """
    if len(problem.batches) > 1:
        size, u = _direction(problem.value_and_gradient()[1])
        return size, float(u @ (problem.matrix("hessian") @ u))
    problem.require_gradient()
    problem.activations.require("the graph of the gradient of a batch", BACKWARD)
    params = list(problem.params.values())
    with worded("hessian", problem.dtype):
        parts = gradients(problem._outputs, problem._raised_loss, params, problem.batches[0])
        slope = torch.cat([part.flatten() for part in parts])
        size, u = _direction(slope.detach())
        if not slope.requires_grad:
            return size, 0.0
        parts = torch.autograd.grad(slope, params, u.to(slope), materialize_grads=True)
        image = require_numbers_of("hessian", torch.cat([part.flatten() for part in parts]))
    return size, float(u @ image.to(u))


def _direction(g: Tensor) -> tuple[float, Tensor]:
    """Return ‖g‖ and g/‖g‖ in float64; the squares of tiny entries do not vanish."""
    g = g.to("cpu", torch.float64)
    peak = float(g.abs().max()) or 1.0
    size = float((g / peak).norm())
    return peak * size, g / peak / (size or 1.0)
