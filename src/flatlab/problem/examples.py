"""Derivatives of single examples: rows of the Jacobian and their norms.

With J_i = ∂f(x_i)/∂θ the matrices (1/n) Σ J_iᵀ B_i J_i have the trace
(1/n) Σ_i Σ_c λ_ic ‖J_iᵀ v_ic‖², where B_i = Σ_c λ_ic v_ic v_icᵀ. So exact traces need only the
norms of rows J_iᵀ v.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad, vjp, vmap

from ..errors import UserError
from .ghost import CHUNK, Ghost
from .kernels import require_numbers_of
from .losses import first_line, raised, slopes
from .operators import Matrix
from .problem import Problem, kernels
from .statistics import norms_of

# Rows of Jacobians are computed in pieces of at most this many numbers.
ROOM = 2**26

Tick = Callable[[], None]
Vector = NDArray[np.float64]


def mixing(problem: Problem) -> str | None:
    """Say why an example's output depends on other examples of its batch, or return None."""
    norms = norms_of(problem.model)
    if problem.mode == "train" and norms:
        return (
            "in mode='train' BatchNorm mixes the examples of a batch, so that single examples have "
            "no gradient: measure in mode='eval' or 'recomputed'"
        )
    if any(norm.running_mean is None for norm in norms):
        return (
            "a BatchNorm with track_running_stats=False mixes the examples of a batch, so that "
            "single examples have no gradient: leave measures of single examples out"
        )
    if problem.mixed:
        return (
            "the model's output for an example depends on the other examples of its batch, so that "
            "single examples have no gradient: put examples first (batch_first=True), take no means"
            " over the batch, or leave measures of single examples out"
        )
    return None


def require_examples(problem: Problem) -> None:
    """Raise if an example's output depends on other examples of its batch, or has no gradient."""
    mixed = mixing(problem)
    if mixed is not None:
        raise UserError(mixed)
    problem.require_gradient()


def single(problem: Problem) -> Callable[[Iterable[Tensor], Tensor], Any]:
    """Return (parameters, x_i) ↦ the model's outputs for one example, in a form for torch.func."""
    fixed = {n: p.detach() for n, p in problem.model.named_parameters() if n not in problem.params}
    fixed |= dict(problem.model.named_buffers())

    def outputs(params: Iterable[Tensor], x_i: Tensor) -> Any:
        given = {**fixed, **dict(zip(problem.params, params, strict=True))}
        return functional_call(problem.model, given, (x_i[None],))

    return outputs


def vectorised(function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """Return the function of each example, by vmap."""
    with kernels(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vmap warns when it has no batching rule and loops
        return vmap(function)(*rows)


def rows(problem: Problem, x: Tensor, covectors: Tensor) -> Tensor:
    """Return J_iᵀ v_i for every example of a batch, (batch, size).

    By vmap over examples, or one after the other if the model has an operation that vmap lacks.
    """
    covectors = covectors.to(problem.outputs[0].dtype)
    outputs, theta = single(problem), tuple(p.detach() for p in problem.params.values())

    def row(x_i: Tensor, v_i: Tensor) -> Tensor:
        pull: Any = vjp(lambda *params: outputs(params, x_i)[0], *theta)[1]
        return torch.cat([part.flatten() for part in pull(v_i)])

    try:
        return vectorised(row, x, covectors)
    except RuntimeError:  # includes torch's NotImplementedError
        with kernels():
            return _rows_one_by_one(problem, x, covectors)


def _rows_one_by_one(problem: Problem, x: Tensor, covectors: Tensor) -> Tensor:
    found, params = [], list(problem.params.values())
    for x_i, v_i in zip(x, covectors, strict=True):
        try:
            with torch.enable_grad():
                output = problem.model(x_i[None])[0]
                parts = torch.autograd.grad(output, params, v_i, materialize_grads=True)
        except RuntimeError as error:
            raise UserError(
                f"the gradient of a single example failed: {first_line(error)}. Leave measures of "
                "single examples out, or replace that operation"
            ) from None
        found.append(torch.cat([part.to_dense().flatten() for part in parts]))
    return torch.stack(found)


def pieces(problem: Problem, size: int | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield (x, outputs, y) in pieces of `size`, or with rows that fit in memory for None."""
    require_examples(problem)
    size = size or max(1, ROOM // problem.size)
    for (x, y), outputs in zip(problem.batches, problem.outputs, strict=True):
        parts = (torch.split(part, size) for part in (x, outputs, y))
        yield from zip(*parts, strict=True)


def factors(problem: Problem, kind: str, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return λ (examples, c) and v (examples, outputs, c) with B_i = Σ_c λ_ic v_ic v_icᵀ.

    B_i belongs to the matrix `kind`, over the flattened outputs of one example. With s² the
    diagonal of B_i, λ are the eigenvalues of B_i/(s sᵀ), whose entries have one size: outputs of
    small curvature do not drown in the rounding of others. Directions with λ = 0 for every example
    are left out (softmax has one). Both are in float64.
    """
    loss, wide, labels = raised(problem.loss, outputs.detach(), y)
    flat = wide.flatten(1) if wide.ndim > 1 else wide[:, None]
    n, c = flat.shape
    if kind == "fisher":
        u = slopes(problem.loss, outputs, y).reshape(n, c, 1).double()
        return torch.ones_like(u[:, 0]), u
    if kind == "gram":
        return torch.ones_like(flat).double(), torch.eye(c).to(flat).double().expand(n, c, c)

    bent = _loss_hessians(loss, problem.loss_name, flat, outputs.shape[1:], labels).double()
    sizes = require_numbers_of(kind, bent).diagonal(dim1=1, dim2=2).abs().sqrt()
    scale = torch.where(sizes > 0, sizes, 1.0)
    values, vectors = torch.linalg.eigh(bent / scale[:, :, None] / scale[:, None])
    zero = max(1e-14, 4 * torch.finfo(flat.dtype).eps)  # the rounding error of B_i
    largest = values.abs().amax(1, keepdim=True)
    counts = (values.abs() > zero * largest).any(0)
    return values[:, counts], (scale[:, :, None] * vectors)[:, :, counts]


def _loss_hessians(loss: Any, name: str, flat: Tensor, shape: torch.Size, y: Tensor) -> Any:
    """Return ∂²ℓ_i/∂f² for each example, (examples, outputs, outputs)."""

    def one(f: Tensor, y_i: Tensor) -> Any:
        return loss(f.view(shape)[None], y_i[None])

    twice: Callable[..., Any] = torch.func.jacrev(torch.func.jacrev(one))
    hessian: Any = torch.autograd.functional.hessian
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vmap warns when it has no batching rule and loops
        with contextlib.suppress(RuntimeError, ValueError, IndexError, TypeError):
            return vmap(twice)(flat, y)
        try:
            each = [hessian(partial(one, y_i=y_i), f) for f, y_i in zip(flat, y, strict=True)]
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise UserError(
                f"the loss {name} failed on a single example: {first_line(error)}. It "
                "must take one row as it takes many, and have two derivatives"
            ) from None
    return torch.stack(each)


def directions(
    problem: Problem, kind: str, size: int | None = None
) -> Iterator[tuple[Tensor, list[Tensor], list[Tensor]]]:
    """Yield each piece's x, and for each direction c the weights λ_ic/n and the covectors v_ic."""
    for x, outputs, y in pieces(problem, size):
        values, vectors = factors(problem, kind, outputs, y)
        weights = [value / problem.n for value in values.unbind(1)]
        shaped = vectors.to(outputs.dtype).reshape(*outputs.shape, vectors.shape[2])
        yield x, weights, list(shaped.unbind(-1))


def every_row(problem: Problem, kind: str, tick: Tick = lambda: None) -> tuple[Tensor, Tensor]:
    """Return all rows J_iᵀ v_ic, (rows, size), and their weights λ_ic/n, in float64.

    A matrix that is zero at these outputs, as Huber's GGN far from the labels, has one zero row.
    """
    problem.require(kind)
    found, every = [], []
    for x, weights, vectors in directions(problem, kind):
        for weight, v in zip(weights, vectors, strict=True):
            found.append(rows(problem, x, v).double())
            every.append(weight)
            tick()
    if not found:
        return torch.zeros(1, problem.size).double(), torch.zeros(1).double()
    return torch.cat(found), torch.cat(every)


def example_factors(problem: Problem, tick: Tick = lambda: None) -> tuple[Tensor, Tensor]:
    """Return rows R, (n, c, size), and signs s, (n, c), with G_i = Σ_c s_ic R_ic R_icᵀ, in float64.

    G_i = J_iᵀ (∂²ℓ_i/∂f²) J_i is the Gauss–Newton matrix of one example. Rows of zeros fill up
    where pieces of the data need fewer directions than others.
    """
    problem.require("ggn")
    found, every = [], []
    for x, weights, vectors in directions(problem, "ggn"):
        lam = torch.stack(weights, 1) * problem.n if weights else torch.zeros(len(x), 0)
        parts = [rows(problem, x, v).double() for v in vectors]
        tick()
        each = torch.stack(parts, 1) if parts else torch.zeros(len(x), 0, problem.size).double()
        found.append((each * lam.double().abs().sqrt()[:, :, None].to(each)).cpu())
        every.append(lam.double().sign().cpu())
    most = max(1, *(part.shape[1] for part in found))
    filled = [torch.nn.functional.pad(R, (0, 0, 0, most - R.shape[1])) for R in found]
    signs = [torch.nn.functional.pad(s, (0, most - s.shape[1])) for s in every]
    return torch.cat(filled), torch.cat(signs)


def exact_traces(problem: Problem, kind: str, tick: Tick = lambda: None) -> Vector:
    """Return the trace of every parameter's diagonal block, in the place of its first number.

    Kind "hessian" is for networks that are linear in each parameter alone, whose Hessian has the
    diagonal blocks of the GGN. The GGN of a loss that is linear in the outputs is zero, and
    refused: it says nothing of the model.

    If all parameters belong to linear, convolutional or BatchNorm layers that are used once, the
    norms come from the layers' inputs and back-propagated outputs; otherwise from explicit rows.
    """
    total = np.zeros(problem.size)
    sizes = [p.numel() for p in problem.params.values()]
    places = dict(zip(problem.params, np.cumsum([0, *sizes[:-1]]), strict=True))
    problem.require(kind)
    with kernels():
        ghost = Ghost.of(problem)
        for x, weights, vectors in directions(problem, kind, CHUNK if ghost else None):
            norms = ghost.norms(x, len(weights)) if ghost else partial(_row_norms, problem, x)
            for weight, v in zip(weights, vectors, strict=True):
                for name, squared in norms(v).items():
                    total[places[name]] += float(squared.double() @ weight)
                tick()
    return total


def exact_diagonal(problem: Problem, kind: str, tick: Tick = lambda: None) -> Vector:
    """Return the diagonal of the matrix in float64, exactly; the routes are those of the trace."""
    total = torch.zeros(problem.size, dtype=torch.float64)
    problem.require(kind)
    with kernels():
        ghost = Ghost.of(problem)
        for x, weights, vectors in directions(problem, kind, CHUNK if ghost else None):
            if ghost is not None:
                total += ghost.squares(x, weights, vectors, tick).cpu()
                continue
            for weight, v in zip(weights, vectors, strict=True):
                total += (weight @ rows(problem, x, v).double().square()).cpu()
                tick()
    return total.numpy()


def example_products(problem: Problem, x: Tensor, y: Tensor, vectors: Tensor) -> Tensor:
    """Return ∇²ℓ_i v_i for every example of a batch, (batch, size), reverse over reverse."""
    outputs = single(problem)

    def one(x_i: Tensor, y_i: Tensor, v_i: Tensor) -> Any:
        def loss(theta: Tensor) -> Any:
            return problem.loss(outputs(problem.split(theta), x_i), y_i[None])

        pull: Any = vjp(grad(loss), problem.theta)[1]
        return pull(v_i)[0]

    return vectorised(one, x, y, vectors)


def hessian_spread(problem: Problem) -> Matrix:
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
        for x, _, y in pieces(problem, size):
            try:
                first = example_products(problem, x, y, v.expand(len(x), -1))
                total += example_products(problem, x, y, first - mean).sum(0)
            except RuntimeError as error:
                raise UserError(
                    f"Hessians of single examples failed: {first_line(error)}. "
                    "The model or the loss cannot be batched by torch.func.vmap"
                ) from None
        return total / problem.n

    return Matrix(problem.size, product, problem.dtype, problem.device)


def input_gradients(problem: Problem) -> Vector:
    """Return ‖∂ℓ_i/∂x_i‖₂ of every example."""
    norms = []
    for x, y in problem.batches:
        if not x.is_floating_point():
            raise UserError(
                f"input_gradient needs real inputs, got {x.dtype}: leave it out for models that "
                "read tokens"
            )
        x = x.detach().clone().requires_grad_(True)
        with kernels(), torch.enable_grad():
            loss = problem.loss(problem.model(x), y)
            (slope,) = torch.autograd.grad(loss, x, allow_unused=True)
        if slope is None:
            raise UserError(
                "input_gradient needs outputs that depend smoothly on the inputs; the model rounds "
                "or detaches them (x.long() for tokens): leave it out"
            )
        norms.append((slope.double() * len(x)).flatten(1).norm(dim=1).cpu().numpy())
    return np.concatenate(norms)


def _row_norms(problem: Problem, x: Tensor, covectors: Tensor) -> dict[str, Tensor]:
    sizes = [p.numel() for p in problem.params.values()]
    parts = torch.split(rows(problem, x, covectors), sizes, 1)
    return {name: part.square().sum(1) for name, part in zip(problem.params, parts, strict=True)}
