"""The sources' conditions and definitions as yes-or-no functions of data and networks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..data import Dataset
from .bounds import is_xor
from .geometry import separate
from .solution import Array, Solution


def is_extreme(x: Array) -> NDArray[np.bool_]:
    """Return which points are extreme points of the set (Definition 4.1).

    >>> is_extreme(np.array([[0.0], [1.0], [2.0]]))
    array([ True, False,  True])
    """
    return separate(np.asarray(x, np.float64)).extreme


def interpolates(solution: Solution, tolerance: float = 1e-9) -> bool:
    """Return whether f(x_i) = y_i on the training set (Definition 2.1)."""
    y = solution.data.y_train
    scale = max(1.0, float(np.abs(y).max()))
    return bool(np.abs(solution.outputs() - y).max() <= tolerance * scale)


def is_memorising(solution: Solution) -> bool:
    """Return whether the network memorises (Definition 4.2).

    It memorises if it interpolates and, in every hidden layer, each training point activates
    exactly one neuron, and no two points the same one.
    """
    if not interpolates(solution):
        return False
    layers = [activations > 0 for activations in solution.hidden()]
    return all(np.all(on.sum(1) == 1) and len({*on.argmax(1)}) == len(on) for on in layers)


def satisfies_condition_1(data: Dataset) -> bool:
    """Return whether the training set is {±1}² × S with y = x1·x2 and span(S − S) of rank d − 2."""
    x = data.x_train
    if data.d < 3 or not np.all(np.abs(x) == 1) or not is_xor(data):
        return False
    points = np.unique(x[:, 2:], axis=0)
    if len(np.unique(x, axis=0)) != data.n or data.n != 4 * len(points):
        return False
    return bool(np.linalg.matrix_rank(points[1:] - points[0]) == data.d - 2)


def path_norm(solution: Solution) -> float:
    """Return Σ_j ‖w_j‖|a_j| of a two-layer network, its bias counted as a weight."""
    W1 = solution.params["W1"]
    squares = np.sum(W1**2, 1) + np.square(solution.params.get("b1", 0.0))
    return float(np.sum(np.sqrt(squares) * np.abs(solution.params["W2"])))
