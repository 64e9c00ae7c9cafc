"""Whole curvature matrices of small problems.

Rows of the Hessian of a batch come from backward passes through its gradient, vectorised over unit
vectors. The other matrices are (1/n) Σ J_iᵀ B_i J_i, summed from rows J_iᵀ v of single examples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from ..outside.memory import saved_bytes
from .batches import Batch
from .examples import factors, mixing, rows
from .operators import BACKWARD, gradients
from .problem import Problem

# Numbers that are held at a time; more do not fit in the cache and take twice as long.
ROOM = 2**21

Fits = Callable[[float], bool]


class _Stopped(Exception):
    """Raised if the rest is not wanted."""


def dense(problem: Problem, kind: str, fits: Fits) -> Tensor | None:
    """Return a matrix of the problem, made symmetric, in float64 on the CPU.

    After each piece it asks `fits(share done)`; None if that says no.
    """
    try:
        if kind == "hessian":
            whole = _hessian(problem, fits)
        elif mixing(problem) is None:
            whole = _from_rows(problem, kind, fits)
        else:
            whole = problem.matrix(kind).dense()
    except _Stopped:
        return None
    whole = whole.to("cpu", torch.float64)
    return (whole + whole.T) / 2


def _ask(fits: Fits, before: float, share: float, done: float) -> None:
    if before + share * done < 1 and not fits(before + share * done):
        raise _Stopped


def _from_rows(problem: Problem, kind: str, fits: Fits) -> Tensor:
    """Return (1/n) Σ_ic λ_ic r_ic r_icᵀ with r_ic = J_iᵀ v_ic."""
    total = torch.zeros(problem.size, problem.size, dtype=torch.float64, device=problem.device)
    seen = 0
    for (x, y), outputs in zip(problem.batches, problem.outputs, strict=True):
        values, vectors = factors(problem, kind, outputs, y)
        directions = vectors.shape[2]
        if not directions:
            continue
        size = max(1, ROOM // (problem.size * directions))
        parts = (torch.split(part, size) for part in (x, values, vectors))
        for inputs, weights, covectors in zip(*parts, strict=True):
            each = covectors.transpose(1, 2).reshape(-1, *outputs.shape[1:])
            J = rows(problem, inputs.repeat_interleave(directions, 0), each).double()
            total += (J * weights.reshape(-1, 1)).T @ J
            seen += len(inputs)
            _ask(fits, 0.0, 1.0, seen / problem.n)
    return total / problem.n


def _hessian(problem: Problem, fits: Fits) -> Tensor:
    total = torch.zeros(problem.size, problem.size, dtype=problem.dtype, device=problem.device)
    seen = 0
    for batch in problem.batches:
        before, share = seen / problem.n, len(batch[0]) / problem.n
        tell = functools.partial(_ask, fits, before, share)
        total += share * _batch_hessian(problem, batch, tell)
        seen += len(batch[0])
    return total


def _batch_hessian(problem: Problem, batch: Batch, tell: Callable[[float], None]) -> Tensor:
    """Return ∇²L_b, reverse over reverse; vectorised if every operation can be."""
    params: list[Tensor] = list(problem.params.values())
    held = BACKWARD * saved_bytes(lambda: problem.model(batch[0]))
    parts = gradients(problem.model, problem.loss, params, batch, fast=False)
    slope = torch.cat([part.flatten() for part in parts])
    units = torch.eye(problem.size, dtype=problem.dtype, device=problem.device)
    if not slope.requires_grad:
        return torch.zeros_like(units)
    size = max(1, ROOM // max(problem.size, held // slope.element_size()))
    try:
        return _rows(slope, params, units, size, tell)
    except RuntimeError:  # an operation without a rule for vmap
        return _rows(slope, params, units, 1, tell)


def _rows(
    slope: Tensor, params: list[Tensor], units: Tensor, size: int, tell: Callable[[float], None]
) -> Tensor:
    """Return ∇_θ ⟨∇L, v⟩ for each unit vector v, `size` of them at a time."""
    found: list[Tensor] = []
    for part in torch.split(units, size):
        v, several = (part, True) if len(part) > 1 else (part[0], False)
        parts = torch.autograd.grad(
            slope, params, v, retain_graph=True, is_grads_batched=several, materialize_grads=True
        )
        found.append(torch.cat([each.reshape(len(part), -1) for each in parts], 1))
        tell(len(found) * size / len(units))
    return torch.cat(found)
