"""Flattest minima with bias that generalise: Propositions A.1 and A.2."""

from __future__ import annotations

import numpy as np

from ...data import Dataset, from_arrays
from ...errors import UserError, positive
from ...models import Params, TwoLayer
from ..geometry import on_circle, separate
from ..solution import Solution
from ._checks import common_norm
from .memorising import memorising

NARROW = 1e-12
"""Least rise of a step, in the cosine; less would be rounding."""
NARROW_SPIKE = 3e-9
"""The narrowest spike on the circle that float64 resolves."""


def finite_labels(data: Dataset, epsilon: float | None = None) -> Solution:
    """The network of Proposition A.1: the label depends on few coordinates that are extreme points.

    Let v_j be the values of the relevant coordinates, w_j a direction that separates v_j from the
    others, and ‖x‖ = R. Neuron j is σ(r_j (w_j·(v − v_j) + ε)/ε) and its output weight y_j/r_j,
    with r_j² = |y_j|√(R²+1). A value with label zero gets no neuron. The printed r_j² = |y_j|(R²+1)
    and v_j in the place of w_j are wrong (erratum E7).

    Args:
        data: Its `relevant` coordinates decide the label; all inputs have one norm.
        epsilon: Width of the spikes; half the smallest margin unless given.
    """
    if not data.relevant:
        raise UserError(
            f"finite_labels needs to know which coordinates decide the label of {data.name!r}"
        )
    R = common_norm(data, "finite_labels")
    values, first, inverse = np.unique(
        data.x_train[:, data.relevant], axis=0, return_index=True, return_inverse=True
    )
    labels = data.y_train[first]
    if not np.array_equal(labels[inverse.ravel()], data.y_train):
        raise UserError(f"the labels of {data.name!r} depend on more than its relevant coordinates")
    found = separate(values)
    if not found.extreme.all():
        raise UserError(
            f"the relevant coordinates take {len(values)} values that are no set of extreme points"
        )
    margin = float(found.margins.min())
    epsilon = (1.0 if np.isinf(margin) else margin / 2) if epsilon is None else epsilon
    epsilon = positive("epsilon", epsilon)
    if epsilon >= margin:
        raise UserError(f"epsilon must be < {margin:.6g}, the smallest margin, got {epsilon:g}")
    kept = labels != 0
    r = np.sqrt(np.abs(labels[kept]) * np.sqrt(R**2 + 1))
    directions, at = found.directions[kept], np.sum(found.directions * values, 1)[kept]
    params: Params = {"W1": np.zeros((len(r), data.d))}
    params["W1"][:, data.relevant] = (r / epsilon)[:, None] * directions
    params["b1"] = r / epsilon * (epsilon - at)
    params["W2"] = labels[kept] / r
    return Solution(TwoLayer(width=len(r)), params, data)


def circle_steps(data: Dataset, edge: float = 0.02) -> Solution:
    """A flattest minimum on the circle whose error vanishes with n: Proposition A.2, corrected.

    The printed network (eq. 17) does not interpolate (erratum E9). Here n narrow neurons memorise
    the points. Two more for each gap between neighbours fire inside the gap only, at no training
    point, so the trace is still the floor. With c = cos of the angle to the middle of the gap, h
    half its angle, t = cos((1 − edge/2) h) and T = cos((1 − edge) h),

        (y/(T − t)) (σ(c − t) − σ(c − T))

    is y, the mean of the neighbours' labels, on the gap except at its edges. The width is 3n; in a
    gap too narrow for float64 f stays zero.

    Args:
        data: Inputs on a circle in the first two coordinates, of one norm.
        edge: Share of a gap on which the step rises and falls.
    """
    if data.d < 2 or not np.allclose(np.sum(data.x_train[:, :2] ** 2, 1), 1, rtol=0, atol=1e-9):
        raise UserError(f"circle_steps needs x1² + x2² = 1, unlike {data.name!r}")
    if data.n < 3:
        raise UserError(f"circle_steps needs n >= 3 points, got {data.n}")
    if not 0 < edge < 1:
        raise UserError(f"edge must lie between 0 and 1, got {edge!r}")
    angles = np.arctan2(data.x_train[:, 1], data.x_train[:, 0])
    order = np.argsort(angles)
    angles = angles[order]
    gaps = np.append(np.diff(angles), angles[0] + 2 * np.pi - angles[-1])
    if gaps.max() >= np.pi:
        raise UserError("circle_steps needs points with no gap of half the circle: draw more")
    nearest = np.minimum(gaps, np.roll(gaps, 1))
    widths = np.empty(data.n)
    widths[order] = np.maximum(1 - np.cos(edge / 2 * nearest), NARROW_SPIKE)
    plane = from_arrays(data.x_train[:, :2], data.y_train)
    spikes = _lifted(memorising(plane, epsilon=widths), data)  # they end within the gaps' edges
    labels = data.y_train[order]
    height = (labels + np.roll(labels, -1)) / 2
    middle, half = angles + gaps / 2, gaps / 2
    outer, inner = np.cos((1 - edge / 2) * half), np.cos((1 - edge) * half)
    toward = np.zeros((data.n, data.d))
    toward[:, :2] = on_circle(middle)
    rise = inner - outer
    slope = np.where(rise > NARROW, height / np.maximum(rise, NARROW), 0.0)
    size = np.sqrt(np.abs(slope))
    params: Params = {
        "W1": np.vstack([spikes["W1"], size[:, None] * toward, size[:, None] * toward]),
        "b1": np.concatenate([spikes["b1"], -size * outer, -size * inner]),
        "W2": np.concatenate([spikes["W2"], np.sign(slope) * size, -np.sign(slope) * size]),
    }
    return Solution(TwoLayer(width=3 * data.n), params, data)


def circle_as_printed(data: Dataset) -> Solution:
    """The network of eq. (17) as printed, which does not interpolate (erratum E9)."""
    angles = np.arctan2(data.x_train[:, 1], data.x_train[:, 0])
    order = np.argsort(angles)
    sorted_ = angles[order]
    before = np.append(sorted_[-1] - 2 * np.pi, sorted_[:-1])
    z = (before + sorted_) / 2
    after = np.append(z[1:], z[0] + 2 * np.pi)
    w = on_circle((z + after) / 2)  # perpendicular to the chord from z_j to z_{j+1}
    v, at_z = on_circle(sorted_), np.sum(w * on_circle(z), 1)
    labels = data.y_train[order]
    r = np.sqrt(np.abs(labels) * np.sqrt(common_norm(data, "circle") ** 2 + 1))
    params: Params = {"W1": np.zeros((data.n, data.d))}
    params["W1"][:, :2] = (r / at_z)[:, None] * w
    params["b1"] = r * (at_z - np.sum(w * v, 1)) / at_z
    params["W2"] = labels / r
    return Solution(TwoLayer(width=data.n), params, data)


def _lifted(made: Solution, data: Dataset) -> Params:
    """Return the neurons of a network in the plane as neurons of R^d, balanced for ‖x‖ = R."""
    R = common_norm(data, "circle_steps")
    factor = ((R**2 + 1) / 2) ** 0.25  # ‖x'‖ is √2 in the plane
    W1 = np.zeros((data.n, data.d))
    W1[:, :2] = made.params["W1"] * factor
    return {"W1": W1, "b1": made.params["b1"] * factor, "W2": made.params["W2"] / factor}
