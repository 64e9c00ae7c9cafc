"""How much the examples' Hessians differ: the source of SGD's multiplicative noise."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.func import functional_call, grad, vjp, vmap

from ..errors import UserError
from ..problem import Matrix, Problem
from ..problem.examples import ROOM, require_examples
from ..problem.problem import kernels
from ..specs import spec
from .contract import About, Measured
from .effort import Effort
from .eigenvalues import Limit, Tolerance
from .ends import extreme
from .krylov import krylov


def example_products(problem: Problem, x: Tensor, y: Tensor, vectors: Tensor) -> Tensor:
    """Return ∇²ℓ_i v_i for every example of a batch, (batch, size), reverse over reverse."""
    fixed = {n: p.detach() for n, p in problem.model.named_parameters() if n not in problem.params}
    fixed |= dict(problem.model.named_buffers())

    def one(x_i: Tensor, y_i: Tensor, v_i: Tensor) -> Tensor:
        def loss(theta: Tensor) -> Tensor:
            given = {**fixed, **dict(zip(problem.params, problem.split(theta), strict=True))}
            out: Tensor = functional_call(problem.model, given, (x_i[None],))
            value: Tensor = problem.loss(out, y_i[None])
            return value

        derived: Any = vjp(grad(loss), problem.theta)
        product: Tensor = derived[1](v_i)[0]
        return product

    with kernels(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where vmap has no batching rule it loops, and says so
        return vmap(one)(x, y, vectors)


def spread(problem: Problem) -> Matrix:
    """Return E[H_i²] − H² as a matrix, with products E[H_i (H_i v − H v)] that do not cancel."""
    require_examples(problem)
    hessian = problem.matrix("hessian")
    # A product through single examples holds about this many copies of their parameters.
    size = max(1, ROOM // (8 * problem.size))

    def product(v: Tensor) -> Tensor:
        if v.ndim == 2:
            return torch.stack([product(column) for column in v.unbind(1)], 1)
        mean = (hessian @ v).to(v)
        total = torch.zeros_like(v)
        for whole_x, whole_y in problem.batches:
            for start in range(0, len(whole_x), size):
                x, y = (part[start : start + size] for part in (whole_x, whole_y))
                try:
                    first = example_products(problem, x, y, v.expand(len(x), -1))
                    total += example_products(problem, x, y, first - mean).sum(0)
                except RuntimeError as error:
                    raise UserError(
                        f"Hessians of single examples failed: {str(error).partition(chr(10))[0]}. "
                        "The model or the loss cannot be batched by torch.func.vmap"
                    ) from None
        return total / problem.n

    return Matrix("spread", problem.size, product, problem.dtype, problem.device)


@spec
class NonUniformity:
    """λ_max(E[H_i²] − H²) with H_i = ∇²ℓ_i and H = E H_i, by Lanczos; s is its square root.

    In one dimension it is the variance of the curvatures. With learning rate η and batch size B,
    SGD near an interpolating minimum has E‖θ‖² contract if
    λ_max((I − ηH)² + η²(n−B)/(B(n−1)) (E[H_i²] − H²)) ≤ 1, which needs
    s ≤ (1/η) √(B(n−1)/(n−B)).
    """

    tolerance: Tolerance = 1e-3
    max_products: Limit = 100
    about: ClassVar[About] = About(
        "s²",
        "the non-uniformity: the largest eigenvalue of the variance of the examples' Hessians",
        "λ_max(E[H_i²] − H²), H_i = ∇²ℓ_i; details['s'] is its root, in units of the sharpness",
        "about 10 to 30 products, each with two per-example Hessian products for all examples",
        "the condition on s is necessary for that inequality, not for SGD to be stable. ReLU kinks "
        "are not seen",
        exact="no: a bound on the error from the residual",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        effort.expect(20)
        space = krylov(spread(problem), effort, "lanczos")
        end = extreme(space, effort, -1, self.tolerance, self.max_products)
        return end.measured("Lanczos", s=math.sqrt(max(end.value, 0.0)))
