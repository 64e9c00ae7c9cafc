"""Two-layer networks as combinations of neurons, each with its share of the trace.

A network Σ_j a_j σ(w_j·x) has (2/n) Σ_i ‖∇f(x_i)‖² = 2 Σ_j (a_j² A_j + M_j), where A_j is the mean
of ‖x_i‖² over the training set with inactive points counted as zero, and M_j the mean of
σ(w_j·x_i)². Scaling w_j up and a_j down by the same factor does not change f; with the best factor
the share of neuron j is 2·2|a_j|√(A_j M_j). So the least trace of Σ_u c_u σ(u·x) over all
rescalings is Σ_u cost(u)|c_u|,

    cost(u) = 4 √(A(u) M(u)),

linear in |c|. With a bias, x is (x, 1). With simplified BatchNorm the output layer and γ give
2(‖W2‖² + ‖γ‖²), and the first layer's share vanishes as it is scaled up: the formula holds
with A = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from ..data import Dataset
from ..data.dataset import Array
from ..errors import UserError
from ..models import Params, TwoLayer
from .solution import Solution

Family = Literal["no-bias", "bias", "sim-bn"]

TINY = 1e-150
BITS, SCALE_BITS = 32, 15
"""Bits kept of a direction's entries and of its scale: products and sums are then exact."""
FIRST_LAYER_SCALE = 1e4
"""Factor K on the first layer under simplified BatchNorm; its share of the trace is c/K²."""


@dataclass(frozen=True)
class Neurons:
    """All neurons of a family over one training set.

    Directions are rows of a (neurons, d) array, with the bias as one more column where there is
    one; activations are columns of an (n, neurons) array.

    Attributes:
        data: The training set.
        family: "no-bias", "bias" or "sim-bn".
        kinks: Whether a point with w·x = 0 exactly counts as inactive, as relu'(0) = 0 says.
            Otherwise it counts as active, the larger of the two one-sided limits.
    """

    data: Dataset
    family: Family
    kinks: bool = True

    @cached_property
    def points(self) -> Array:
        """Training inputs, with a one appended where there is a bias."""
        x = self.data.x_train
        return x if self.family == "no-bias" else np.hstack([x, np.ones((len(x), 1))])

    def activations(self, directions: Array) -> Array:
        """Return σ(u·x_i)."""
        return np.maximum(self.points @ directions.T, 0.0)

    def cost(self, directions: Array) -> Array:
        """Return the share of the trace of one neuron with coefficient 1, 4√(A M)."""
        return self._cost(self.points @ directions.T)

    def columns(self, directions: Array) -> Array:
        """Return σ(u·x_i)/cost(u)."""
        h = self.points @ directions.T
        return np.asarray(np.maximum(h, 0.0) / self._cost(h))

    def tidy(self, directions: Array) -> Array:
        """Round entries to 32 bits below the largest; drop neurons that are zero on all points.

        Then w·x is exact for points of ±1 in every order of summation. So whether a point is on a
        kink is exact too, even after the scaling of `network`.
        """
        largest = np.max(np.abs(directions), 1, keepdims=True)
        _, exponent = np.frexp(largest)
        made = np.ldexp(np.rint(np.ldexp(directions, BITS - exponent)), -BITS)
        return np.asarray(made[self._alive(made)])

    def ascend(self, directions: Array, weights: Array, steps: int) -> tuple[Array, Array]:
        """Maximise |Σ_i λ_i σ(u·x_i)|/cost(u) by gradient ascent from every start.

        Each start follows its own gradient with A held fixed (A is piecewise constant). Its step
        grows after a success and halves after a failure; the value never falls.

        Args:
            directions: The starts; neurons that are zero on all points are left out.
            weights: λ.
            steps: Number of steps.

        Returns:
            Directions and the absolute value each has reached.
        """
        u = directions[self._alive(directions)]
        u = u / self.cost(u)[:, None]
        n, x = len(self.points), self.points
        sign = np.where(weights @ self.activations(u) >= 0, 1.0, -1.0)
        h, step = x @ u.T, np.full(len(u), 0.5)
        value = sign * (weights @ np.maximum(h, 0.0))
        for _ in range(steps):
            positive = np.maximum(h, 0.0)
            square = np.maximum(np.mean(positive**2, 0), TINY)
            slope = np.where(h > 0, np.outer(weights, sign), 0.0) - value / (n * square) * positive
            uphill = (slope.T @ x) @ self._whitening
            length = np.linalg.norm(u, axis=1) / np.maximum(np.linalg.norm(uphill, axis=1), TINY)
            tried = u + (step * length)[:, None] * uphill
            pre = x @ tried.T
            cost = self._cost(pre)
            reached = np.where(
                cost > 0, sign * (weights @ np.maximum(pre, 0.0)) / np.maximum(cost, TINY), -np.inf
            )
            better = reached > value
            scale = np.where(better, 1 / np.maximum(cost, TINY), 1.0)
            u = np.where(better[:, None], tried * scale[:, None], u)
            h, value = np.where(better, pre * scale, h), np.where(better, reached, value)
            step = np.where(better, 1.3 * step, 0.5 * step)
        return u, value

    def alone(self) -> Array:
        """Return a neuron that fires at one training point only, for each point that has one."""
        x, found = self.points, []
        unit_labels = 2 * np.eye(len(x)) - 1
        cheap = np.linalg.pinv(x) @ unit_labels
        for i in range(len(x)):
            others = np.arange(len(x)) != i
            direction = cheap[:, i]
            if not self._separates(direction, i, others):
                direction = self._separating(i, others)
            if self._separates(direction, i, others):
                found.append(direction)
        return np.array(found).reshape(-1, x.shape[1])

    def pairs(self) -> Array:
        """Return ±x_a ± x_b for all pairs of coordinates, with bias −1 added where there is one."""
        d = self.data.d
        first, second = np.triu_indices(d, 1)
        made = []
        for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            part = np.zeros((len(first), self.points.shape[1]))
            rows = np.arange(len(first))
            part[rows, first], part[rows, second] = signs
            made.append(part)
            if self.family == "bias":
                part = part.copy()
                part[:, -1] = -1
                made.append(part)
        return np.vstack(made)

    def network(self, directions: Array, coefficients: Array, width: int | None = None) -> Solution:
        """Return Σ_u c_u σ(u·x) with every neuron scaled to the least trace.

        Args:
            directions: The neurons u, none of them zero on all training points.
            coefficients: Their c.
            width: Width, padded with zero neurons; by default as many neurons as needed.
        """
        count = len(coefficients)
        if width is not None and width < count:
            raise UserError(
                f"width must be >= {count}, the neurons this network needs, got {width}"
            )
        normalised, bias = self.family == "sim-bn", self.family != "no-bias"
        rms = np.sqrt(np.mean(self.activations(directions) ** 2, 0))
        if normalised:
            scale = FIRST_LAYER_SCALE / rms
            gamma = np.sqrt(np.abs(coefficients) * rms)
            output = np.sign(coefficients) * gamma
        else:
            # (c/s)²A + s²M is least at s² = |c|√(A/M).
            scale = _rounded(np.sqrt(np.abs(coefficients) * self.cost(directions) / 4) / rms)
            output = coefficients / scale
        pad = (width or count) - count
        first = np.pad(scale[:, None] * directions, ((0, pad), (0, 0)))
        params: Params = {"W1": first[:, : self.data.d]}
        if bias:
            params["b1"] = first[:, -1]
        params["W2"] = np.pad(output, (0, pad))
        if normalised:
            params["gamma"] = np.pad(gamma, (0, pad))
        arch = TwoLayer(width=count + pad, bias=bias, norm="batch" if normalised else None)
        return Solution(arch, params, self.data)

    def corners(self, rng: np.random.Generator, count: int) -> Array:
        """Return random neurons with as many training points as possible just behind their kinks.

        A(u) is piecewise constant, so gradient ascent does not find these neurons. The points are
        drawn at random, one fewer than a neuron has weights; the neuron has w·x_j = −δ at each of
        them.
        """
        x = self.points
        size = min(x.shape[1] - 1, len(x))
        if size == 0:
            return np.zeros((0, x.shape[1]))
        chosen = x[rng.permuted(np.tile(np.arange(len(x)), (count, 1)), axis=1)[:, :size]]
        normal = np.linalg.svd(chosen)[2][:, -1]
        normal *= rng.choice([-1.0, 1.0], (count, 1))
        behind = np.linalg.pinv(chosen) @ np.ones(size)
        return np.asarray(normal - 1e-6 * behind)

    @cached_property
    def _whitening(self) -> Array:
        x = self.points
        covariance = x.T @ x / len(x)
        ridge = 1e-3 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
        return np.asarray(np.linalg.inv(covariance + ridge))

    def _alive(self, directions: Array) -> NDArray[np.bool_]:
        reached = np.max(self.points @ directions.T, 0, initial=0.0)
        return np.asarray(reached > 1e-5 * np.max(np.abs(directions), 1))

    def _cost(self, pre: Array) -> Array:
        square = np.mean(np.maximum(pre, 0.0) ** 2, 0)
        if self.family == "sim-bn":
            return np.asarray(4 * np.sqrt(square))
        # A point closer behind a kink than the rounding of `tidy` may end up in front of it.
        active = pre > -1e-8 * np.sqrt(square)
        if self.kinks:
            active &= pre != 0
        share = np.sum(self.points**2, 1) @ active / len(pre)
        return np.asarray(4 * np.sqrt(share * square))

    def _separates(self, direction: Array, i: int, others: NDArray[np.bool_]) -> bool:
        h = self.points @ direction
        return bool(h[i] > 0 and np.all(h[others] < -1e-9 * h[i]))

    def _separating(self, i: int, others: NDArray[np.bool_]) -> Array:
        # Largest t ≤ 1 with w·x_i = 1 and w·x_j ≤ −t for the others.
        x = self.points
        k = x.shape[1]
        found = optimize.linprog(
            np.append(np.zeros(k), -1.0),
            A_ub=np.hstack([x[others], np.ones((len(x) - 1, 1))]),
            b_ub=np.zeros(len(x) - 1),
            A_eq=np.append(x[i], 0.0)[None],
            b_eq=[1.0],
            bounds=[(None, None)] * k + [(None, 1.0)],
        )
        return np.zeros(k) if found.x is None else np.asarray(found.x[:k])


def _rounded(values: Array) -> Array:
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.rint(np.ldexp(mantissa, SCALE_BITS)), exponent - SCALE_BITS))
