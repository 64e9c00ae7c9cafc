"""The xor network without bias (A.2.4), and memorising without bias on at most d points."""

from __future__ import annotations

import numpy as np

from ...data import Dataset
from ...errors import UserError, whole_number
from ...models import Params, TwoLayer
from ..solution import Solution
from ._checks import require_xor
from .balancing import balanced
from .memorising import padded, require_labels


def no_bias_xor(data: Dataset, epsilon: float = 0.01, width: int = 4) -> Solution:
    """The width-4 network of A.2.4, f = x1·x2 on the cube for every ε in [0, 1), balanced.

    W1 has the rows (±(1+ε), ±(1−ε), 0, …), W2 = ±1/(2 − 2ε). Every quadrant activates two neurons
    if ε > 0, with Σ‖w_j‖|a_j| = 2√2 √(1+ε²)/(1−ε), and Tr ∇²L → 4√(2d) as ε → 0. At ε = 0 two
    neurons have their kink on every training point; with relu'(0) = 0 the trace is then 4√d, the
    floor, but not at any nearby parameters (erratum E29).

    Args:
        data: An xor data set.
        epsilon: ε, from 0 to 1.
        width: Neurons, at least 4; the others are zero.
    """
    require_xor(data, "no_bias_xor")
    width = whole_number("width", width, 4)
    if not 0 <= epsilon < 1:
        raise UserError(f"epsilon must lie in [0, 1), got {epsilon!r}")
    params: Params = {"W1": np.zeros((width, data.d))}
    first, second = 1 + epsilon, 1 - epsilon
    params["W1"][:4, :2] = [[first, second], [first, -second], [-first, second], [-first, -second]]
    params["W2"] = padded(np.array([1.0, -1.0, -1.0, 1.0]) / (2 - 2 * epsilon), width)
    return balanced(Solution(TwoLayer(width=width, bias=False), params, data))


def no_bias_memorising(data: Dataset) -> Solution:
    """A memorising network without bias, at the floor: for n ≤ d linearly independent inputs.

    For such inputs there are rows with w_i·x_j = 2δ_ij − 1, so neuron i fires at x_i alone and no
    point is on a kink. Balanced, ‖∇f(x_i)‖² = 2‖x_i‖|y_i|. So with fewer samples than Theorem 3.1
    asks for, a flattest minimum without bias need not generalise either.

    Args:
        data: At most d linearly independent training inputs, labels not zero.
    """
    require_labels(data)
    if np.linalg.matrix_rank(data.x_train) < data.n:
        raise UserError(
            f"no_bias_memorising needs linearly independent inputs, n <= d: got n={data.n}, "
            f"d={data.d}, rank {np.linalg.matrix_rank(data.x_train)}"
        )
    wanted = 2 * np.eye(data.n) - 1
    W1 = np.linalg.lstsq(data.x_train, wanted.T, rcond=None)[0].T
    params: Params = {"W1": W1, "W2": data.y_train.copy()}
    return balanced(Solution(TwoLayer(width=data.n, bias=False), params, data))
