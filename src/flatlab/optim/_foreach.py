"""Arithmetic on lists of tensors as one vector; every result stays a tensor on its device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def norm(tensors: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm of all the tensors together.

    >>> norm([torch.tensor([3.0]), torch.tensor([[4.0]])])
    tensor(5.)
    """
    # 16-bit floats hold three digits, and float16 no norm above 65504.
    short = any(t.dtype in (torch.float16, torch.bfloat16) for t in tensors)
    parts = torch._foreach_norm(list(tensors), 2, torch.float32 if short else None)
    whole: Tensor = torch.linalg.vector_norm(torch.stack([p.to(parts[0].device) for p in parts]))
    return whole


def dot(one: Sequence[Tensor], two: Sequence[Tensor]) -> Tensor:
    """Return the inner product of two lists of tensors; a complex number counts as two real ones.

    >>> dot([torch.tensor([1.0, 2.0])], [torch.tensor([3.0, 4.0])])
    tensor(11.)
    >>> dot([torch.tensor([1.0 + 2.0j])], [torch.tensor([3.0 + 4.0j])])
    tensor(11.)
    """
    parts = [_product(a, b) for a, b in zip(one, two, strict=True)]
    return torch.stack([p.to(parts[0].device) for p in parts]).sum()


def _product(a: Tensor, b: Tensor) -> Tensor:
    if a.is_complex():  # Re⟨conj(a), b⟩, the product that the norm above belongs to
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    return torch.sum(a * b)


def part_along(one: Sequence[Tensor], two: Sequence[Tensor]) -> Tensor:
    """Return c = ⟨one, two⟩/‖two‖², so that c · two is the part of the first along the second."""
    size = norm(two)
    return ratio(ratio(dot(one, two), size), size)


def times(tensors: Sequence[Tensor], factor: Tensor) -> list[Tensor]:
    """Return every tensor times one factor.

    >>> times([torch.tensor([1.0, 2.0])], torch.tensor(3.0))
    [tensor([3., 6.])]
    """
    if len({t.device for t in tensors}) <= 1:
        return list(torch._foreach_mul(list(tensors), factor.to(tensors[0].device)))
    return [t * factor.to(t.device) for t in tensors]


def add_scaled_(params: Sequence[Tensor], moves: Sequence[Tensor], factor: Tensor) -> None:
    """Add factor times each move to its parameter, in place.

    >>> w = torch.tensor([1.0, 2.0])
    >>> add_scaled_([w], [torch.tensor([1.0, -1.0])], torch.tensor(0.5))
    >>> w
    tensor([1.5000, 1.5000])
    """
    if factor.device.type == "cpu":  # reading a number on the CPU waits for nothing
        torch._foreach_add_(list(params), list(moves), alpha=float(factor))
    else:
        torch._foreach_add_(list(params), times(moves, factor))


def ratio(above: Tensor | float, below: Tensor) -> Tensor:
    """Return above/below, or 0 where that is not finite: no direction means no displacement.

    >>> ratio(1.0, torch.tensor(0.0)), ratio(0.0, torch.tensor(0.0)), ratio(1.0, torch.tensor(4.0))
    (tensor(0.), tensor(0.), tensor(0.2500))
    """
    return torch.nan_to_num(above / below, nan=0.0, posinf=0.0, neginf=0.0)
