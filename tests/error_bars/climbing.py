"""The largest rise of the loss near θ that this test finds: projected ascent from twelve starts.

The starts are along the gradient, along the Hessian's upper eigenvectors in the region's own
coordinates, both ways, and random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .oracle import Oracle

STARTS = 12
EIGENVECTORS = 3
STEPS = 40
# An ascent ends after this many steps that raise no start's rise by more than this share.
PATIENCE, SETTLED = 4, 1e-4


@dataclass(frozen=True)
class Region:
    """All δ = scale ⊙ u with ‖u‖₂ ≤ radius, or |u_i| ≤ radius in a box."""

    scale: Tensor
    radius: float
    box: bool

    def project(self, u: Tensor) -> Tensor:
        """Return the nearest point of the region, for every row."""
        if self.box:
            return u.clamp(-self.radius, self.radius)
        found: Tensor = u * (self.radius / _sizes(u)).clamp(max=1.0)
        return found

    def farthest(self, slopes: Tensor) -> Tensor:
        """Return the point of the region farthest along each row."""
        if self.box:
            return self.radius * slopes.sign()
        found: Tensor = self.radius * slopes / _sizes(slopes)
        return found


def _sizes(rows: Tensor) -> Tensor:
    """Return the norm of every row, as a column; never zero."""
    return torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp(min=1e-300)


def starts(oracle: Oracle, region: Region, seed: int) -> Tensor:
    """Return points on the region's boundary, one in each row."""
    scale = region.scale.numpy()
    _, vectors = np.linalg.eigh(scale[:, None] * oracle.matrix("hessian") * scale)
    top = vectors[:, ::-1][:, :EIGENVECTORS].T
    slope = (oracle.gradient * region.scale).numpy()[None]
    drawn = np.random.default_rng([seed, 17]).normal(size=(STARTS - 1 - 2 * len(top), oracle.size))
    rows = np.concatenate([slope, top, -top, drawn])
    return region.farthest(torch.from_numpy(rows))


def highest_rise(
    oracle: Oracle, region: Region, seed: int, known: Tensor | None = None
) -> tuple[float, float]:
    """Return the highest rise found by this test alone, and the highest with a known step too."""
    u = starts(oracle, region, seed)
    if known is not None:
        u = torch.cat([u, (known / region.scale.clamp(min=1e-300))[None]])
    values, slopes = oracle.slopes_at(region.scale * u)
    first = values.copy()
    length = torch.full((len(u), 1), 2.0, dtype=torch.float64)
    idle = 0
    for _ in range(STEPS):
        there = region.project(u + length * region.farthest(slopes * region.scale))
        new, steep = oracle.slopes_at(region.scale * there)
        better = torch.from_numpy(new > values)[:, None]
        u, slopes = torch.where(better, there, u), torch.where(better, steep, slopes)
        higher = np.fmax(values, new)  # a loss that is NaN raises nothing
        raised = (higher - values).max() > SETTLED * (values.max() - oracle.loss)
        values = higher
        length = torch.where(better, length * 2, length / 2)
        idle = 0 if raised else idle + 1
        if idle == PATIENCE:
            break
    own = max(0.0, float(values[:STARTS].max()) - oracle.loss)
    both = own if known is None else max(own, float(first[STARTS]) - oracle.loss)
    return own, both
