"""Two functions with the same minima, of which SGD with a large learning rate keeps only one.

Lei Wu's lecture prints two versions: with c = (0.1, 1.9) and weight w = 1 or w = ½,

    f_i(x) = w min(x², c_i (x − 1)²).

Both have minima of the mean at x = 0 and x = 1, of equal curvature. At x = 0 both functions have
the same curvature, at x = 1 they differ. SGD takes a step on f_1 or f_2, drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.dataset import Array
from ..measures.second_moment import require_rate

RATIOS = np.array([0.1, 1.9])
LEARNING_RATE = 0.7
"""The learning rate of both slides."""


@dataclass(frozen=True)
class TwoFunctions:
    """The two functions with a common weight: 1, or ½ as on the slide before."""

    weight: float = 1.0

    def slopes(self, x: Array, drawn: NDArray[np.int64]) -> Array:
        """Return f_i'(x), for i = 0 or 1 drawn for each x."""
        c = RATIOS[drawn]
        left = x**2 <= c * (x - 1) ** 2
        return np.asarray(2 * self.weight * np.where(left, x, c * (x - 1)))

    def factors(self, minimum: int, lr: float = LEARNING_RATE) -> Array:
        """Return 1 − ηa_i near x = 0 or x = 1: what a step on f_i multiplies the distance by."""
        curvatures = 2 * self.weight * (RATIOS if minimum else np.ones(2))
        return np.asarray(1 - require_rate(lr) * curvatures)

    def walk(
        self, start: float, steps: int, count: int, rng: np.random.Generator,
        lr: float = LEARNING_RATE,
    ) -> Array:  # fmt: skip
        """Return x_t of `count` runs of SGD, (steps + 1, count)."""
        x = np.full(count, float(start))
        found = [x]
        for _ in range(steps):
            x = x - require_rate(lr) * self.slopes(x, rng.integers(0, 2, count))
            found.append(x)
        return np.array(found)
