"""Do two passes over the data give the same examples, in any order?

Each example becomes one number s_i = Σ_p w_p x_ip with a fixed random weight for each position p,
so flipping or permuting an example changes it. Its label becomes a number t_i in the same way. Sums
of s, t, their squares and their product over all examples do not depend on the order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..randomness import generator

# Relative to the sum of absolute values: rounding of sums is far below, one changed example of a
# million above.
TOLERANCE = 1e-7


def same_examples(
    first: Sequence[tuple[Tensor, Tensor]], second: Sequence[tuple[Tensor, Tensor]]
) -> bool:
    """Return whether two lists of batches hold the same pairs (x_i, y_i)."""
    (counts, sums, sizes), (others, again, _) = _moments(first), _moments(second)
    return counts == others and bool(((sums - again).abs() <= TOLERANCE * sizes).all())


def _moments(batches: Sequence[tuple[Tensor, Tensor]]) -> tuple[int, Tensor, Tensor]:
    """Return the number of examples, the sums, and the same sums of absolute values."""
    terms = []
    for x, y in batches:
        s, t = _projected(x, "x"), _projected(y, "y")
        terms.append(torch.stack([s, s * s, t, t * t, s * t]))
    every = torch.cat(terms, 1)
    return every.shape[1], every.sum(1), every.abs().sum(1)


def _projected(part: Tensor, name: str) -> Tensor:
    """Return one number for each example, in float64."""
    part = torch.view_as_real(part) if part.is_complex() else part
    flat = part.reshape(len(part), -1).to("cpu", torch.float64)
    weights = generator(0, f"fingerprint of {name}").normal(size=flat.shape[1])
    return flat @ torch.as_tensor(weights)
