"""Derivatives of single examples: rows of the Jacobian and their norms.

With J_i = ∂f(x_i)/∂θ the matrices (1/n) Σ J_iᵀ B_i J_i have the trace
(1/n) Σ_i Σ_c λ_ic ‖J_iᵀ v_ic‖², where B_i = Σ_c λ_ic v_ic v_icᵀ. So exact traces need only the
norms of rows J_iᵀ v.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vjp, vmap

from ..errors import UserError
from .ghost import Ghost
from .losses import first_line
from .problem import Problem, kernels
from .slopes import slopes
from .statistics import norms_of

# Rows of Jacobians are computed in pieces of at most this many numbers.
ROOM = 2**26


def require_examples(problem: Problem) -> None:
    """Raise if an example's output depends on other examples of its batch, or has no gradient."""
    if problem.mode == "train" and problem.has_batchnorm:
        raise UserError(
            "in mode='train' BatchNorm mixes the examples of a batch, so that single examples have "
            "no gradient: measure in mode='eval' or 'recomputed'"
        )
    if any(norm.running_mean is None for norm in norms_of(problem.model)):
        raise UserError(
            "a BatchNorm with track_running_stats=False mixes the examples of a batch, so that "
            "single examples have no gradient: leave measures of single examples out"
        )
    problem.require_gradient()


def rows(problem: Problem, x: Tensor, covectors: Tensor) -> Tensor:
    """Return J_iᵀ v_i for every example of a batch, (batch, size).

    By vmap over examples, or one after the other if the model has an operation that vmap lacks.
    """
    try:
        with kernels(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # vmap warns when it has no batching rule and loops
            return _rows_together(problem, x, covectors)
    except RuntimeError:  # includes torch's NotImplementedError
        with kernels():
            return _rows_one_by_one(problem, x, covectors)


def _rows_together(problem: Problem, x: Tensor, covectors: Tensor) -> Tensor:
    names = list(problem.params)
    fixed = {n: p.detach() for n, p in problem.model.named_parameters() if n not in problem.params}
    fixed |= dict(problem.model.named_buffers())
    values = tuple(p.detach() for p in problem.params.values())

    def row(x_i: Tensor, v_i: Tensor) -> Tensor:
        def output(*params: Tensor) -> Tensor:
            given = {**fixed, **dict(zip(names, params, strict=True))}
            out: Tensor = functional_call(problem.model, given, (x_i[None],))
            return out[0]

        pull: Any = vjp(output, *values)[1]
        return torch.cat([part.flatten() for part in pull(v_i)])

    return vmap(row)(x, covectors)


def _rows_one_by_one(problem: Problem, x: Tensor, covectors: Tensor) -> Tensor:
    found = []
    for x_i, v_i in zip(x, covectors, strict=True):
        try:
            with torch.enable_grad():
                parts = torch.autograd.grad(
                    problem.model(x_i[None])[0], list(problem.params.values()), v_i,
                    allow_unused=True, materialize_grads=True,
                )  # fmt: skip
        except RuntimeError as error:
            raise UserError(
                f"the gradient of a single example failed: {first_line(error)}. Leave measures of "
                "single examples out, or replace that operation"
            ) from None
        found.append(torch.cat([part.to_dense().flatten() for part in parts]))
    return torch.stack(found)


def pieces(problem: Problem) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield (x, outputs, y) in pieces whose rows of the Jacobian fit in memory."""
    require_examples(problem)
    size = max(1, ROOM // problem.size)
    for (x, y), outputs in zip(problem.batches, problem.outputs, strict=True):
        parts = (torch.split(part, size) for part in (x, outputs, y))
        yield from zip(*parts, strict=True)


def factors(problem: Problem, kind: str, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return λ (examples, c) and v (examples, outputs, c) with B_i = Σ_c λ_ic v_ic v_icᵀ.

    B_i belongs to the matrix `kind`, over the flattened outputs of one example. Directions with λ =
    0 for every example are left out (softmax has one).
    """
    flat = outputs.detach().flatten(1) if outputs.ndim > 1 else outputs.detach()[:, None]
    n, c = flat.shape
    if kind == "fisher":
        return torch.ones_like(flat[:, :1]), slopes(problem.loss, outputs, y).reshape(n, c, 1)
    if kind == "gram":
        return torch.ones_like(flat), torch.eye(c).to(flat).expand(n, c, c)

    bent = _loss_hessians(problem, flat, outputs.shape[1:], y)
    values, vectors = torch.linalg.eigh(bent.double())
    zero = max(1e-14, 4 * torch.finfo(flat.dtype).eps)  # the rounding error of B_i
    counts = values.abs().amax(0) > zero * values.abs().max()
    return values[:, counts].to(flat.dtype), vectors[:, :, counts].to(flat.dtype)


def _loss_hessians(problem: Problem, flat: Tensor, shape: torch.Size, y: Tensor) -> Tensor:
    """Return ∂²ℓ_i/∂f² for each example, (examples, outputs, outputs)."""

    def one(f: Tensor, y_i: Tensor) -> Tensor:
        value: Tensor = problem.loss(f.view(shape)[None], y_i[None])
        return value

    twice: Callable[..., Any] = torch.func.jacrev(torch.func.jacrev(one))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vmap warns when it has no batching rule and loops
        try:
            together: Tensor = vmap(twice)(flat, y)
            return together
        except (RuntimeError, ValueError, IndexError, TypeError):
            pass
        hessian: Any = torch.autograd.functional.hessian
        try:
            return torch.stack(
                [hessian(lambda f, y_i=y_i: one(f, y_i), f) for f, y_i in zip(flat, y, strict=True)]
            )
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise UserError(
                f"the loss {problem.loss_name} failed on a single example: {first_line(error)}. It "
                "must take one row as it takes many, and have two derivatives"
            ) from None


def exact_traces(
    problem: Problem, kind: str, tick: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Return the trace of the diagonal block of every parameter, exactly.

    If all parameters belong to linear, convolutional or BatchNorm layers that are used once, the
    norms come from the layers' inputs and back-propagated outputs; otherwise from explicit rows.
    """
    ghost = Ghost.of(problem)
    totals = dict.fromkeys(problem.params, 0.0)
    with kernels():
        for x, weights, vectors in _factored(problem, kind, ghost):
            norms = _row_norms(problem, x) if ghost is None else ghost.norms(x, len(weights))
            for weight, v in zip(weights, vectors, strict=True):
                for name, squared in norms(v).items():
                    totals[name] += float(squared.double() @ weight)
                tick()
    return totals


def exact_diagonal(problem: Problem, kind: str, tick: Callable[[], None] = lambda: None) -> Tensor:
    """Return the diagonal of the matrix in float64, exactly; the routes are those of the trace."""
    ghost = Ghost.of(problem)
    total = torch.zeros(problem.size, dtype=torch.float64)
    with kernels():
        for x, weights, vectors in _factored(problem, kind, ghost):
            if ghost is not None:
                total += ghost.squares(x, weights, vectors, tick).cpu()
                continue
            for weight, v in zip(weights, vectors, strict=True):
                total += (weight @ rows(problem, x, v).double().square()).cpu()
                tick()
    return total


def _factored(
    problem: Problem, kind: str, ghost: Ghost | None
) -> Iterator[tuple[Tensor, list[Tensor], list[Tensor]]]:
    """Yield each piece's x, and for each direction c the weights λ_ic/n and the covectors v_ic."""
    require_examples(problem)
    for x, outputs, y in pieces(problem) if ghost is None else ghost.pieces(problem):
        values, vectors = factors(problem, kind, outputs, y)
        weights = [value.double() / problem.n for value in values.unbind(1)]
        yield x, weights, list(vectors.reshape(*outputs.shape, -1).unbind(-1))


def _row_norms(problem: Problem, x: Tensor) -> Callable[[Tensor], dict[str, Tensor]]:
    sizes = [p.numel() for p in problem.params.values()]

    def norms(covectors: Tensor) -> dict[str, Tensor]:
        found = torch.split(rows(problem, x, covectors), sizes, 1)
        return {
            name: part.square().sum(1) for name, part in zip(problem.params, found, strict=True)
        }

    return norms
