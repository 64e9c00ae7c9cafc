"""How much a measure may spend, and where its random numbers come from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from ..randomness import generator

# (spent, expected) products of the running measure
Tick = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Budget:
    """A limit for each measure: seconds, products with a matrix (or gradients), or both."""

    seconds: float | None = None
    products: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("products", self.products)):
            if value is not None and not value > 0:
                raise UserError(f"budget {name} must be > 0, got {value!r}")


class Effort:
    """The running account of one measure.

    A measure asks `left()` before each product and always makes the first few that give any answer
    at all; when nothing is left it returns its best estimate with the error that estimate has.
    """

    def __init__(self, seed: int, budget: Budget | None = None, tick: Tick | None = None):
        self.seed, self.budget = seed, budget or Budget()
        self.spent = 0
        self._tick, self._start = tick or (lambda spent, expected: None), time.monotonic()
        self.expected: int | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the measure began."""
        return time.monotonic() - self._start

    def spend(self, products: int = 1) -> None:
        """Account for products just made."""
        self.spent += products
        self._tick(self.spent, self.expected)

    def expect(self, products: int) -> None:
        """Say how many products the whole measure will probably take."""
        self.expected = products

    def left(self) -> bool:
        """Return whether another product may be made."""
        budget = self.budget
        within_time = self.seconds < (budget.seconds or math.inf)
        return within_time and self.spent < (budget.products or math.inf)

    def normal(self, purpose: str, index: int, *shape: int) -> Tensor:
        """Return standard normal numbers in float64, always the same for one seed and use."""
        return torch.from_numpy(
            generator(self.seed, f"measure:{purpose}", index).normal(size=shape)
        )

    def signs(self, purpose: str, index: int, size: int) -> Tensor:
        """Return independent ±1 in float64."""
        draw = generator(self.seed, f"measure:{purpose}", index).integers(0, 2, size)
        return torch.from_numpy(2.0 * draw - 1.0)
