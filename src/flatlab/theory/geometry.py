"""Extreme points, and the directions that separate each from the others (Definition 4.1).

A finite set is a set of extreme points if none lies in the convex hull of the others; equivalently
for every i some w has w·x_i > w·x_j for all j ≠ i. On a sphere about the origin, and so on the
cube, w_i = x_i/‖x_i‖ works. Elsewhere a linear programme finds w_i or shows that there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ..data.dataset import Array
from ..errors import UserError, listed

# A margin below this share of the points' size counts as rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Separation:
    """Directions and margins, one for each point.

    The margin of the unit vector w_i is min_{j≠i} w_i·(x_i − x_j); it is not positive where x_i is
    no extreme point.
    """

    directions: Array
    margins: Array

    @property
    def extreme(self) -> NDArray[np.bool_]:
        """Which points are extreme."""
        return np.asarray(self.margins > 0)


def separate(x: Array) -> Separation:
    """Return a separating direction for every point, and its margin.

    On a sphere w_i = x_i/‖x_i‖. Elsewhere w_i maximises the margin over ‖w‖_∞ ≤ 1 and is then
    scaled to ‖w_i‖ = 1.

    >>> square = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [0.5, 0.0]])
    >>> separate(square).extreme
    array([ True,  True,  True,  True, False])
    """
    size = float(np.abs(x).max()) or 1.0
    if not 1e-100 < size < 1e100:
        raise UserError(f"inputs reach {size:.3g}: rescale them to about 1")
    norms = np.linalg.norm(x, axis=1)
    if len(x) == 1:
        unit = x / norms if norms[0] > 0 else np.eye(1, x.shape[1])
        return Separation(unit, np.array([np.inf]))
    directions = np.zeros_like(x)
    if norms.min() > 0 and np.ptp(norms) <= ROUNDING * size:
        directions = x / norms[:, None]
    margins = _margins(x, directions)
    for i in np.flatnonzero(margins <= ROUNDING * size):  # not on a sphere, or close together
        directions[i] = _best_direction(x, int(i))
    margins = _margins(x, directions)
    return Separation(directions, np.where(margins > ROUNDING * size, margins, 0.0))


def on_circle(angles: Array) -> Array:
    """Return the points of the unit circle at these angles."""
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def _margins(x: Array, directions: Array) -> Array:
    gaps = np.sum(directions * x, 1)[:, None] - directions @ x.T
    np.fill_diagonal(gaps, np.inf)
    return np.asarray(gaps.min(1))


def require_extreme(x: Array) -> Separation:
    """Return the separation, or raise and name the points that are not extreme."""
    require_distinct(x)
    found = separate(x)
    if not found.extreme.all():
        bad = np.flatnonzero(~found.extreme)
        one = len(bad) == 1
        raise UserError(
            f"the training inputs are no set of extreme points: {'point' if one else 'points'} "
            f"{listed(bad, most=5)} (from 0) {'lies' if one else 'lie'} in the convex hull of "
            "the others, or closer to it than float64 can tell; take fewer points on a sphere or "
            "on the cube, or leave these out"
        )
    return found


def require_distinct(x: Array) -> None:
    """Raise if two points are equal, naming the first two."""
    _, first, inverse = np.unique(x, axis=0, return_index=True, return_inverse=True)
    if len(first) < len(x):
        twin = int(np.flatnonzero(first[inverse.ravel()] != np.arange(len(x)))[0])
        raise UserError(
            f"training inputs {int(first[inverse.ravel()[twin]])} and {twin} (from 0) are equal: "
            "distinct points are needed; draw fewer points or another seed"
        )


def _best_direction(x: Array, i: int) -> Array:
    """Return the unit w that maximises min_j w·(x_i − x_j) within ‖w‖_∞ ≤ 1, or zeros."""
    others = np.delete(x, i, axis=0)
    d = x.shape[1]
    cost = np.append(np.zeros(d), -1.0)
    rows = np.hstack([others - x[i], np.ones((len(others), 1))])  # t ≤ w·(x_i − x_j)
    bounds = [(-1.0, 1.0)] * d + [(None, None)]
    solved = linprog(cost, rows, np.zeros(len(others)), bounds=bounds, method="highs")
    if solved.x is None:  # bounded and feasible at zero: only the scale can be at fault
        raise UserError(
            f"whether point {i} (from 0) is extreme could not be found out, its numbers are too "
            f"large or too small ({solved.message.partition('.')[0]}): rescale the inputs"
        )
    w = np.asarray(solved.x[:d])
    norm = float(np.linalg.norm(w))
    return np.asarray(w / norm if norm > 0 else w)
