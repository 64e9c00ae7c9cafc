"""The xor network, one neuron for each quadrant of (x1, x2), for every architecture."""

from __future__ import annotations

import numpy as np

from ...data import Dataset
from ...errors import UserError, positive, whole_number
from ...models import Params, TwoLayer
from ..solution import Array, Solution
from ._checks import require_xor
from .balancing import balanced
from .memorising import padded

SIGNS = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
"""(−1)^i, (−1)^j of neuron 2i + j + 1."""


def four_neurons(data: Dataset, r: float | None = None, width: int = 4) -> Solution:
    """The xor network of eq. (5): one neuron for each quadrant of (x1, x2), as flat as any.

    W1 has the rows r(±1, ±1, 0, …), b1 = −r and W2 = ±1/r: on the cube a neuron is r on its own
    quadrant and 0 elsewhere, f = x1·x2, and Tr ∇²L = 2(r² + (d+1)/r²), least at r = (d+1)^{1/4},
    where it is 4√(d+1). The printed r = (d²+1)^{1/4} is not the minimum (erratum E1).

    Args:
        data: An xor data set.
        r: Scale of the first layer; (d+1)^{1/4} unless given.
        width: Neurons, at least 4; the others are dead.
    """
    require_xor(data, "four_neurons")
    width = whole_number("width", width, 4)
    r = (data.d + 1) ** 0.25 if r is None else positive("r", r)
    params = _quadrants(data, r, SIGNS.prod(1) / r, width)
    return Solution(TwoLayer(width=width), params, data)


def layer_norm_four_neurons(data: Dataset, ln_epsilon: float = 1e-3, width: int = 4) -> Solution:
    """The xor network of Proposition 5.2 (eq. 18): W1 = 2ε(±1, ±1, 0, …), b1 = −2ε, W2 = ±1.

    One neuron is 2ε > ε on each quadrant, so h/‖h‖ is one-hot, f = x1·x2 and Tr ∇²L = 2.

    Args:
        data: An xor data set.
        ln_epsilon: ε of simplified LayerNorm.
        width: Neurons, at least 4; the others are dead.
    """
    require_xor(data, "layer_norm_four_neurons")
    width, ln_epsilon = whole_number("width", width, 4), positive("ln_epsilon", ln_epsilon)
    params = _quadrants(data, 2 * ln_epsilon, SIGNS.prod(1), width)
    return Solution(TwoLayer(width=width, norm="layer", ln_epsilon=ln_epsilon), params, data)


def xor_batch_norm(
    data: Dataset, scale: float = 1.0, width: int = 4, balanced: bool = True
) -> Solution:
    """The minimal solution of Lemma A.1: one neuron for each quadrant, with the least ‖γ ⊙ W2‖₁.

    W1 = K(±1, ±1, 0, …), b1 = −K: neuron q is K on its own quadrant and 0 elsewhere, so its root
    mean square is K√p_q with p_q the share of training points there, and f = x1·x2 requires
    γ_q W2_q = ±√p_q. Under Condition 1 p_q = 1/4, ‖γ ⊙ W2‖₁ = 2, and Tr ∇²L = 8 + c/K² falls to 8
    as K → ∞ (`bounds.batch_norm_xor` for other shares). The printed W2 lacks signs (erratum E6).

    Args:
        data: An xor data set with points in every quadrant.
        scale: K, the scale of the first layer.
        width: Neurons, at least 4; the others are dead.
        balanced: Whether |γ| = |W2|, which minimises the trace; otherwise γ = 1 as in the proof.
    """
    require_xor(data, "xor_batch_norm")
    width, scale = whole_number("width", width, 4), positive("scale", scale)
    share = np.array([np.mean(np.all(data.x_train[:, :2] == sign, 1)) for sign in SIGNS])
    if share.min() == 0:
        raise UserError("xor_batch_norm needs training points in every quadrant of (x1, x2)")
    product = SIGNS.prod(1) * np.sqrt(share)
    gamma = np.sqrt(np.abs(product)) if balanced else np.ones(4)
    params = _quadrants(data, scale, product / gamma, width)
    params["gamma"] = padded(gamma, width)
    return Solution(TwoLayer(width=width, norm="batch"), params, data)


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
    params["W1"][:4, :2] = SIGNS * [1 + epsilon, 1 - epsilon]
    params["W2"] = padded(SIGNS.prod(1) / (2 - 2 * epsilon), width)
    return balanced(Solution(TwoLayer(width=width, bias=False), params, data))


def _quadrants(data: Dataset, scale: float, outputs: Array, width: int) -> Params:
    """Return W1 = scale·(±1, ±1, 0, …), b1 = −scale and W2; neurons beyond the fourth are dead."""
    params: Params = {"W1": np.zeros((width, data.d))}
    params["W1"][:4, :2] = scale * SIGNS
    params["b1"] = padded(np.full(4, -scale), width, -1.0)
    params["W2"] = padded(outputs, width)
    return params
