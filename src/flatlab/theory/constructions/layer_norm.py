"""Flattest minima with simplified LayerNorm: Theorem 5.1 and Propositions 5.1 and 5.2."""

from __future__ import annotations

import numpy as np

from ...data import Dataset
from ...errors import whole_number
from ...models import Params, TwoLayer
from ..geometry import require_extreme
from ..solution import Solution
from ._checks import positive, require_xor
from .generalising import SIGNS
from .memorising import padded, require_labels, spike_widths, spikes


def layer_norm_memorising(
    data: Dataset,
    ln_epsilon: float = 1e-3,
    width: int | None = None,
    delta: float | None = None,
    threshold: float = 0.5,
    zero_labels: bool = False,
) -> Solution:
    """The memorising solution of Theorem 5.1, with f = W2 h/max(‖h‖, ε).

    Neuron i is a spike of height u_i at x_i, its output weight r_i y_i. With q_i = ‖x'_i‖|y_i|:

        q_i > ε/2:      u_i = 2ε, r_i = 1, so ‖∇f(x_i)‖² = 1
        0 < q_i ≤ ε/2:  u_i = √(ε q_i), r_i = √(ε/q_i), so ‖∇f(x_i)‖² = 2q_i/ε
        y_i = 0:        no neuron, so ‖∇f(x_i)‖² = 0 (and x_i is not memorised)

    which is the floor of `bounds.layer_norm_floor`. The paper puts the threshold between the first
    two cases at ε, where the second costs up to 2 (erratum E10), and gives the third case a neuron
    (erratum E11).

    Args:
        data: The training inputs must be extreme points.
        ln_epsilon: ε of simplified LayerNorm.
        width: Neurons, at least n; n unless given.
        delta: Width of the spikes; half of each margin unless given.
        threshold: The q_i between the first two cases, as a share of ε.
        zero_labels: Whether labels may be zero; their points are then not memorised.
    """
    if not zero_labels:
        require_labels(data)
    width = whole_number("width", data.n if width is None else width, data.n)
    ln_epsilon = positive("ln_epsilon", ln_epsilon)
    found = require_extreme(data.x_train)
    widths = spike_widths(data, found, delta)
    y = data.y_train
    q = np.sqrt(np.sum(data.x_train**2, 1) + 1) * np.abs(y)
    large = q > threshold * ln_epsilon
    safe = np.where(q > 0, q, 1.0)
    u = np.where(large, 2 * ln_epsilon, np.sqrt(ln_epsilon * safe))
    r = np.where(large, 1.0, np.sqrt(ln_epsilon / safe))
    params = spikes(data, found, u, widths, width)
    dead = np.flatnonzero(y == 0)
    params["W1"][dead] = 0.0
    params["b1"][dead] = -1.0
    params["W2"] = padded(r * y, width)
    return Solution(TwoLayer(width=width, norm="layer", ln_epsilon=ln_epsilon), params, data)


def layer_norm_four_neurons(data: Dataset, ln_epsilon: float = 1e-3, width: int = 4) -> Solution:
    """The xor network of Proposition 5.2 (eq. 18): W1 = 2ε(±1, ±1, 0, …), b1 = −2ε, W2 = ±1.

    One neuron is 2ε > ε on each quadrant, so h/‖h‖ is one-hot, f = x1·x2 and Tr ∇²L = 2.

    Args:
        data: An xor data set.
        ln_epsilon: ε of simplified LayerNorm.
        width: Neurons, at least 4; the others are dead.
    """
    require_xor(data, "layer_norm_four_neurons")
    width = whole_number("width", width, 4)
    ln_epsilon = positive("ln_epsilon", ln_epsilon)
    params: Params = {"W1": np.zeros((width, data.d))}
    params["W1"][:4, :2] = 2 * ln_epsilon * SIGNS
    params["b1"] = padded(np.full(4, -2 * ln_epsilon), width, -1.0)
    params["W2"] = padded(SIGNS.prod(1), width)
    return Solution(TwoLayer(width=width, norm="layer", ln_epsilon=ln_epsilon), params, data)
