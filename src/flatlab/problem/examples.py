"""Derivatives of single examples: rows of the Jacobian and their norms.

With J_i = ∂f(x_i)/∂θ the matrices (1/n) Σ J_iᵀ B_i J_i have the trace
(1/n) Σ_i Σ_c λ_ic ‖J_iᵀ v_ic‖², where B_i = Σ_c λ_ic v_ic v_icᵀ. So exact traces need norms of rows
J_iᵀ v and nothing larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vjp, vmap

from ..errors import UserError
from .ghost import Ghost
from .problem import Problem, kernels

# Rows of Jacobians are held in pieces of at most this many numbers.
ROOM = 2**26


def require_examples(problem: Problem) -> None:
    """Raise where one example's output depends on the others of its batch."""
    if problem.mode == "train" and problem.has_batchnorm:
        raise UserError(
            "in mode='train' BatchNorm mixes the examples of a batch, so that single examples have "
            "no gradient: measure in mode='eval' or 'recomputed'"
        )


def rows(problem: Problem, x: Tensor, covectors: Tensor) -> Tensor:
    """Return J_iᵀ v_i for every example of a batch, (batch, size), by vmap over examples."""
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

    with kernels(), torch.no_grad():
        return vmap(row)(x, covectors)


def loss_gradients(problem: Problem) -> Iterator[Tensor]:
    """Yield ∇ℓ_i in pieces (examples, size) over all data."""
    for x, outputs, y in pieces(problem):
        yield rows(problem, x, slopes(problem, outputs, y))


def pieces(problem: Problem) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield (x, outputs, y) in pieces whose rows of the Jacobian fit in memory."""
    require_examples(problem)
    size = max(1, ROOM // problem.size)
    for (x, y), outputs in zip(problem.batches, problem.outputs, strict=True):
        parts = (torch.split(part, size) for part in (x, outputs, y))
        yield from zip(*parts, strict=True)


def slopes(problem: Problem, outputs: Tensor, y: Tensor) -> Tensor:
    """Return ∂ℓ_i/∂f for each example."""
    outputs = outputs.detach().requires_grad_(True)
    with torch.enable_grad():
        (found,) = torch.autograd.grad(problem.loss(outputs, y), outputs)
    return found * len(outputs)


def factors(problem: Problem, kind: str, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return λ (examples, c) and v (examples, outputs, c) with B_i = Σ_c λ_ic v_ic v_icᵀ.

    B_i is the one of the matrix `kind`, over the flattened outputs of one example. Directions that
    count for no example are left out (softmax has one).
    """
    flat = outputs.detach().flatten(1) if outputs.ndim > 1 else outputs.detach()[:, None]
    n, c = flat.shape
    if kind == "fisher":
        return torch.ones_like(flat[:, :1]), slopes(problem, outputs, y).reshape(n, c, 1)
    if kind == "gram":
        return torch.ones_like(flat), torch.eye(c, dtype=flat.dtype).expand(n, c, c)

    def one(f: Tensor, y_i: Tensor) -> Tensor:
        value: Tensor = problem.loss(f.view(outputs.shape[1:])[None], y_i[None])
        return value

    bent: Callable[..., Any] = torch.func.jacrev(torch.func.jacrev(one))
    values, vectors = torch.linalg.eigh(vmap(bent)(flat, y).double())
    zero = max(1e-14, 4 * torch.finfo(flat.dtype).eps)  # B_i itself is rounded by so much
    counts = values.abs().amax(0) > zero * values.abs().max()
    return values[:, counts].to(flat.dtype), vectors[:, :, counts].to(flat.dtype)


def exact_traces(
    problem: Problem, kind: str, tick: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Return the trace of the diagonal block of every parameter, exactly.

    Norms come from the layers' inputs and back-propagated outputs where all parameters belong to
    linear, convolutional or BatchNorm layers that are used once, and from explicit rows elsewhere.
    """
    require_examples(problem)
    ghost = Ghost.of(problem)
    totals = dict.fromkeys(problem.params, 0.0)
    with kernels():
        parts = pieces(problem) if ghost is None else ghost.pieces(problem)
        for x, outputs, y in parts:
            values, vectors = factors(problem, kind, outputs, y)
            vectors = vectors.reshape(*outputs.shape, -1)
            norms = _row_norms(problem, x) if ghost is None else ghost.norms(x, values.shape[1])
            for c in range(values.shape[1]):
                weights = values[:, c].double() / problem.n
                for name, squared in norms(vectors[..., c]).items():
                    totals[name] += float(squared.double() @ weights)
                tick()
    return totals


def _row_norms(problem: Problem, x: Tensor) -> Callable[[Tensor], dict[str, Tensor]]:
    sizes = [p.numel() for p in problem.params.values()]

    def norms(covectors: Tensor) -> dict[str, Tensor]:
        found = torch.split(rows(problem, x, covectors), sizes, 1)
        return {
            name: part.square().sum(1) for name, part in zip(problem.params, found, strict=True)
        }

    return norms
