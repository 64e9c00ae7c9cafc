"""A growing pool of neurons, and the flattest combination of them that interpolates."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import linalg, optimize

from ..data.dataset import Array
from ..errors import UserError
from ..randomness import generator
from .columns import Neurons

CLOSED = 1e-9
"""Tolerance for the relative gap, and for the excess of a reduced cost over one."""
STARTS, STEPS, ADDED, LIKELY, POOL = 250, 60, 60, 200, 5000
CORNERS = 100
LASSO_FIRST, LASSO_LAST, LASSO_FACTOR, LASSO_SLACK = 0.5, 3e-3, 0.7, 5e-3


class Pool:
    """A pool of neurons, its best combination, and every dual that was searched.

    Coefficients multiply σ(u·x)/cost(u), so the trace is the sum of their absolute values.
    """

    def __init__(self, family: Neurons, seed: int, hints: bool):
        self.family, self.seed, self.y = family, seed, family.data.y_train
        self.rounds = 0
        self.objective = math.inf
        self.best: tuple[Array, Array] = (np.zeros((0, 0)), np.zeros(0))
        self.duals: list[Array] = []
        self.pool = family.tidy(self._first(hints))
        self.coefficients = np.zeros(len(self.pool))
        self.likely = np.ones(len(self.pool), bool)
        self.found = self.pool

    def run(
        self, stop: Callable[[], bool], proved: float | None, report: Callable[[str], None]
    ) -> None:
        """Solve and extend until the dual bound or the proved floor is met, or `stop` says so."""
        self.interpolate()
        rho = LASSO_FIRST
        while not (stop() or self.closed(proved)):
            exact = rho < LASSO_LAST
            largest = self.extend(self.interpolate() if exact else self.lasso(rho))
            if largest <= 1 + CLOSED:
                self.interpolate()
            if largest <= 1 + LASSO_SLACK:
                rho *= LASSO_FACTOR
            report(
                f"round {self.rounds}: {len(self.pool)} neurons, largest reduced cost "
                f"{largest:.6f}, least trace so far {self.objective:.6f}"
            )
        if not self.closed(proved):
            self.interpolate()

    def closed(self, proved: float | None) -> bool:
        """Whether no neuron found would lower the trace."""
        floor = max(self.bound(), proved or 0.0)
        return self.objective - floor <= CLOSED * self.objective

    def _first(self, hints: bool) -> Array:
        points = self.family.points
        corners = self.family.corners(generator(self.seed, "flattest/first"), 2 * len(points))
        made = [points, -points, self._normal(len(points)), corners]
        if hints:
            pairs = self.family.tidy(self.family.pairs())
            fit = np.abs(self.y @ self.family.columns(pairs))
            made.append(pairs[np.argsort(-fit, kind="stable")[:100]])
            if self.family.family != "sim-bn" and len(points) <= 300:
                made.append(self.family.alone())
        return np.vstack(made)

    def _normal(self, count: int) -> Array:
        rng = generator(self.seed, "flattest", self.rounds)
        return rng.standard_normal((count, self.family.points.shape[1]))

    def lasso(self, rho: float) -> Array:
        """Solve ½‖y − f‖² + ½ρ²‖c‖₁² over the pool; return the dual, residual/(ρ²‖c‖₁).

        It is solved over the nearly tight part of the pool, which grows until no neuron outside it
        would help.
        """
        columns = self.family.columns(self.pool)
        part = np.flatnonzero(self.likely)
        for _ in range(10):
            both = np.hstack([columns[:, part], -columns[:, part]])
            stacked = np.vstack([both, np.full((1, both.shape[1]), rho)])
            parts, _ = optimize.nnls(stacked, np.append(self.y, 0.0), maxiter=50 * both.shape[1])
            self.coefficients[:] = 0
            self.coefficients[part] = parts[: len(part)] - parts[len(part) :]
            size = rho**2 * np.sum(np.abs(self.coefficients))
            weights = np.asarray((self.y - columns @ self.coefficients) / max(size, 1e-300))
            reduced = np.abs(weights @ columns)
            missing = np.setdiff1d(np.flatnonzero(reduced > 1 + CLOSED), part)
            if not len(missing):
                break
            best = missing[np.argsort(-reduced[missing], kind="stable")[:LIKELY]]
            part = np.concatenate([np.flatnonzero(self.coefficients), best])
        return weights

    def interpolate(self) -> Array:
        """Solve the linear programme over the pool; return its dual."""
        columns = self.family.columns(self.pool)
        solved = None
        if len(self.pool):  # without: no neuron fires at any point, as when all points are 0
            solved = optimize.linprog(
                np.ones(2 * len(self.pool)), A_eq=np.hstack([columns, -columns]), b_eq=self.y
            )
        if solved is None or solved.status != 0 or solved.x is None or solved.fun is None:
            raise UserError(
                "no network of this family interpolates these labels, or the training points are "
                "too close together for float64 to find one: try another family or fewer points"
            )
        self.coefficients = solved.x[: len(self.pool)] - solved.x[len(self.pool) :]
        if solved.fun < self.objective:
            used = np.abs(self.coefficients) > 1e-10 * np.max(np.abs(self.coefficients))
            self.best = self.pool[used], self.coefficients[used]
            self.objective = float(solved.fun)
        return np.asarray(solved.eqlin.marginals)

    def exact(self) -> tuple[Array, Array]:
        """Return the best combination, interpolating up to rounding.

        The linear programme interpolates to 1e-7. The rest is removed by the least change of the
        coefficients. If its neurons do not span the misfit, other neurons of the pool are added,
        with coefficients as small as the misfit.
        """
        directions, coefficients = self.best
        coefficients = self._corrected(directions, coefficients)
        columns = self.family.columns(directions)
        if np.max(np.abs(self.y - columns @ coefficients)) > 1e-10:
            others = self.family.columns(self.pool)
            left, size, _ = np.linalg.svd(columns, full_matrices=False)
            base = left[:, size > 1e-9 * size[0]]
            rest = others - base @ (base.T @ others)
            _, r, order = linalg.qr(rest, mode="economic", pivoting=True)
            new = order[: len(r)][np.abs(np.diag(r)) > 1e-6 * np.max(np.abs(others))]
            directions = np.vstack([directions, self.pool[new]])
            coefficients = np.append(self.best[1], np.zeros(len(new)))
            coefficients = self._corrected(directions, coefficients)
        used = coefficients != 0
        directions, coefficients = directions[used], coefficients[used]
        return directions, np.asarray(coefficients / self.family.cost(directions))

    def _corrected(self, directions: Array, coefficients: Array) -> Array:
        columns = self.family.columns(directions)
        for _ in range(3):
            misfit = self.y - columns @ coefficients
            coefficients = coefficients + np.linalg.lstsq(columns, misfit, rcond=1e-9)[0]
        return coefficients

    def extend(self, weights: Array) -> float:
        """Add neurons of reduced cost above one; return the largest reduced cost found."""
        self.rounds += 1
        self.duals.append(weights)
        family, support = self.family, self.pool[self.coefficients != 0]
        moved = self._normal(STARTS + len(support))
        size = np.linalg.norm(support, axis=1, keepdims=True) / math.sqrt(support.shape[1])
        starts = np.vstack([moved[:STARTS], support, support + 0.3 * size * moved[STARTS:]])
        if family.family != "sim-bn":
            rng = generator(self.seed, "flattest/corners", self.rounds)
            starts = np.vstack([starts, family.corners(rng, CORNERS)])
        directions = family.tidy(family.ascend(starts, weights, STEPS)[0])
        values = np.abs(weights @ family.columns(directions))
        order = np.argsort(-values, kind="stable")
        better = directions[order[values[order] > 1 + CLOSED][: 4 * ADDED]]
        new = better[_different(family.activations(better))[:ADDED]]
        reduced = np.abs(weights @ family.columns(self.pool))
        reduced[self.coefficients != 0] = np.inf
        kept = np.argsort(-reduced, kind="stable")[:POOL]
        self.pool = np.vstack([self.pool[kept], new])
        self.coefficients = np.zeros(len(self.pool))
        self.likely = np.ones(len(self.pool), bool)
        self.likely[LIKELY + len(support) : len(kept)] = False
        self.found = np.vstack([self.found, new])
        return float(values.max(initial=0.0))

    def bound(self) -> float:
        """Return the best Σλy / max_u |Σλσ(u·x)| over the duals searched and all neurons found."""
        if not self.duals:
            return 0.0
        duals = np.array(self.duals)
        largest = np.max(np.abs(duals @ self.family.columns(self.found)), 1)
        return float(np.max(duals @ self.y / np.maximum(largest, 1e-300)))


def _different(columns: Array) -> list[int]:
    unit = columns / np.linalg.norm(columns, axis=0)
    alike = unit.T @ unit > 1 - 1e-6
    taken: list[int] = []
    for index in range(alike.shape[1]):
        if not alike[index, taken].any():
            taken.append(index)
    return taken
