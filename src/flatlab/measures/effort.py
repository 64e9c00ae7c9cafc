"""How much a measure may spend, and where its random numbers come from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError, whole
from ..randomness import generator

# (spent, expected) products of the running measure, and the share of the data that one covers
OnProducts = Callable[[int, int | None, float], None]


@dataclass(frozen=True)
class Budget:
    """A limit for each measure: seconds, products with a matrix (or gradients), or both."""

    seconds: float | None = None
    products: int | None = None

    def __post_init__(self) -> None:
        for name, kind, what in (
            ("seconds", Real, "a number"),
            ("products", int, "a whole number"),
        ):
            value: Any = whole(getattr(self, name))  # numbers of numpy and torch as Python's
            if value is None:
                continue
            is_number = isinstance(value, kind) and not isinstance(value, bool)
            if not is_number:
                raise UserError(
                    f"budget {name} must be {what}, got {value!r}: e.g. budget=10 for ten seconds, "
                    "or Budget(products=200)"
                )
            if not value > 0:
                raise UserError(f"budget {name} must be > 0, got {value!r}")
            object.__setattr__(self, name, float(value) if kind is Real else value)

    @classmethod
    def of(cls, given: Budget | float | None) -> Budget:
        """Return what a caller may write as a budget: seconds, a `Budget` or None."""
        return given if isinstance(given, Budget) else cls(seconds=given)


class Effort:
    """The running account of one measure.

    A measure asks `left()` before each product, except for the first few without which there is no
    answer. When nothing is left it returns its best estimate with the error of that estimate.
    `refused` is the limit that was met when `left()` last said no, or empty.
    """

    def __init__(self, seed: int, budget: Budget | None = None, tick: OnProducts | None = None):
        self.seed, self.budget = seed, budget or Budget()
        self.spent, self.refused = 0, ""
        self._tick, self._start = tick or (lambda *_: None), time.monotonic()
        self._expected: int | None = None
        self._share = 1.0

    @property
    def seconds(self) -> float:
        """Seconds since the measure began."""
        return time.monotonic() - self._start

    @property
    def expected(self) -> int | None:
        """Expected total number of products, limited by the budget."""
        if self._expected is None:
            return None
        found: float = min(self._expected, self.budget.products or math.inf)
        if self.budget.seconds and self.spent:
            found = min(found, self.spent * self.budget.seconds / max(self.seconds, 1e-9))
        return max(math.ceil(found), self.spent)

    def spend(self, products: int = 1) -> None:
        """Record products just made."""
        self.spent += products
        self._tick(self.spent, self.expected, self._share)

    def expect(self, products: float, share: float = 1.0) -> None:
        """Say how many products the measure will probably take, each over a share of the data.

        It may be called again as more is known.
        """
        self._expected, self._share = math.ceil(products), share
        self._tick(self.spent, self.expected, self._share)

    def left(self) -> bool:
        """Return whether another product may be made."""
        seconds, products = self.budget.seconds, self.budget.products
        if seconds is not None and self.seconds >= seconds:
            self.refused = f"the budget of {seconds:g} s was spent"
        elif products is not None and self.spent >= products:
            self.refused = f"the budget of {products:,} product{'s'[: products > 1]} was spent"
        else:
            return True
        return False

    def affordable(self, seconds: float, products: float) -> float:
        """Return how many things of this price the rest of the budget pays for; inf without one."""
        budget = self.budget
        in_time = math.inf if budget.seconds is None else budget.seconds - self.seconds
        in_number = math.inf if budget.products is None else budget.products - self.spent
        return max(0.0, min(in_time / max(seconds, 1e-9), in_number / max(products, 1e-9)))

    def pace(self, share: float = 1.0) -> Callable[[float], bool]:
        """Return a test `fits(done)`: does a task that begins now end within the seconds left?

        `done` is the part of it that is behind; it may take this share of the time that is left.
        """
        began = self.seconds

        def fits(done: float) -> bool:
            most = self.budget.seconds
            return most is None or (self.seconds - began) / done <= share * (most - began)

        return fits

    def normal(self, purpose: str, index: int, *shape: int) -> Tensor:
        """Return standard normal numbers in float64, the same for the same seed and use."""
        draw = generator(self.seed, f"measure:{purpose}", index).normal(size=shape)
        return torch.from_numpy(draw)

    def signs(self, purpose: str, index: int, size: int) -> Tensor:
        """Return independent ±1 in float64."""
        draw = generator(self.seed, f"measure:{purpose}", index).integers(0, 2, size)
        return torch.from_numpy(2.0 * draw - 1.0)
