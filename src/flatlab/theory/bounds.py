"""Floors of the trace of the Hessian over all interpolating networks (Wen, Li & Ma 2023).

Every function is for L = (1/n) Σ_i (f(x_i) − y_i)², where at interpolation and away from kinks
Tr ∇²L = (2/n) Σ_i ‖∇f(x_i)‖² (Lemma 4.1), the gradient being over all parameters. Each floor is a
bound on ‖∇f(x_i)‖² for one example, averaged over the training set.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from ..data import Dataset
from ..data.dataset import Array
from ..errors import UserError, positive, whole_number


def no_bias_floor(data: Dataset, depth: int = 2) -> float:
    """Floor for ReLU networks without bias: (2/n) Σ_i 2‖x_i‖|y_i| for two layers.

    ‖∇f(x)‖² = ‖σ(W1 x)‖² + ‖x‖² Σ_{active j} W2_j² ≥ 2‖x‖|f(x)| (Theorem 3.1). On the cube it is
    4√d. An xor network reaches it only with training points on the kinks of its ReLUs, where the
    trace is a convention: away from the kinks the trace is larger, even in the limit.

    With D layers it is (2/n) Σ_i D |y_i|^{2(D−1)/D} ‖x_i‖^{2/D}, by the argument of Theorem 4.1
    with x in the place of (x, 1): the product over the layers of ‖∇_{W_l} f‖ = ‖u_{l−1}‖‖δ_l‖ is at
    least ‖x‖|f|^{D−1}, since u_l·δ_l = f.
    """
    return _floor(data, _squared_norms(data), depth)


def bias_floor(data: Dataset, depth: int = 2) -> float:
    """Floor for ReLU networks with D weight layers and a bias in the first.

    (2/n) Σ_i D |y_i|^{2(D−1)/D} (‖x_i‖² + 1)^{1/D} (Theorem 4.1). For D = 2 this is
    (2/n) Σ_i 2|y_i|√(‖x_i‖² + 1), on the cube 4√(d+1), reached away from kinks.
    """
    return _floor(data, _squared_norms(data) + 1, depth)


def layer_norm_floor(data: Dataset, epsilon: float) -> float:
    """Floor for two-layer ReLU networks with bias and simplified LayerNorm u/max(‖u‖, ε).

    (2/n) Σ_i min(1, (2/ε)‖x'_i‖|y_i|) with x' = (x, 1) (Lemma A.12). Where ‖u‖ > ε the output layer
    alone has ‖∇_{W2} f‖ = 1, and the first layer's share vanishes as it is scaled up. Where ‖u‖ ≤ ε
    the network is a plain network divided by ε.
    """
    small = (
        (2 / positive("epsilon", epsilon))
        * np.sqrt(_squared_norms(data) + 1)
        * np.abs(data.y_train)
    )
    return float(2 * np.mean(np.minimum(1, small)))


def batch_norm_xor(data: Dataset) -> float:
    """Infimum of the trace along the four-neuron xor network with simplified BatchNorm: 4 Σ_q √p_q.

    p_q is the fraction of training points in quadrant q of (x1, x2). Neuron q is
    σ(c1 x1 + c2 x2), 2 on its own quadrant and 0 elsewhere, so its rms over the training set is
    2√p_q, and f = y requires |γ_q W2_q| = √p_q. As the first layer is scaled up, its share of the
    trace vanishes and Tr → 2(‖γ‖² + ‖W2‖²) ≥ 4 Σ_q |γ_q W2_q|, with equality at |γ_q| = |W2_q|.
    Equally filled quadrants give 8. Under Condition 1 that is the infimum over all interpolating
    networks of this kind (Lemmas A.1 and A.3, with the factor 2 of Lemma 4.1).

    Args:
        data: An xor data set: (x1, x2) in {±1}² and y = x1·x2 on the training set.
    """
    if not is_xor(data):
        raise UserError(
            f"batch_norm_xor needs x1, x2 in {{-1, 1}} and y = x1*x2, unlike {data.name!r}"
        )
    _, counts = np.unique(data.x_train[:, :2], axis=0, return_counts=True)
    return float(4 * np.sum(np.sqrt(counts / data.n)))


def is_xor(data: Dataset) -> bool:
    """Return whether (x1, x2) is in {±1}² and y = x1·x2 on the training set."""
    quadrants = data.x_train[:, :2]
    on_cube = data.d >= 2 and np.all(np.abs(quadrants) == 1)
    return bool(on_cube and np.array_equal(data.y_train, np.prod(quadrants, axis=1)))


def logistic_floor(
    data: Dataset, smoothing: float, floor: Callable[[Dataset], float] = bias_floor
) -> float:
    """Floor for the label-smoothed logistic loss, from a floor for the squared loss.

    Its minimisers have f = γ_p y with γ_p = log((1 − p)/p). There ℓ'' is p(1 − p) instead of 2, so
    Tr ∇²L = (p(1 − p)/2) · (2/n) Σ ‖∇f(x_i)‖² (Theorem A.2 and Lemma A.13, corrected).

    Args:
        data: Labels ±1.
        smoothing: p, between 0 and 1/2.
        floor: The floor for the squared loss; it is evaluated with the labels γ_p y.
    """
    if not 0 < smoothing < 0.5:
        raise UserError(f"smoothing must lie between 0 and 1/2, got {smoothing!r}")
    if not np.all(np.abs(data.y_train) == 1):
        raise UserError("the logistic floor needs labels -1 and 1")
    gamma = math.log((1 - smoothing) / smoothing)
    scaled = dataclasses.replace(data, y_train=gamma * data.y_train)
    return smoothing * (1 - smoothing) / 2 * floor(scaled)


def _floor(data: Dataset, squared_norms: Array, depth: int) -> float:
    depth = whole_number("depth", depth, least=2)
    size = np.abs(data.y_train) ** (2 * (depth - 1) / depth)
    return float(2 * np.mean(depth * size * squared_norms ** (1 / depth)))


def _squared_norms(data: Dataset) -> Array:
    return np.asarray(np.sum(data.x_train**2, axis=1))
