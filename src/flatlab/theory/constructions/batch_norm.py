"""The xor network with simplified BatchNorm (Lemma A.1), which flattens as W1 → ∞."""

from __future__ import annotations

import numpy as np

from ...data import Dataset
from ...errors import UserError, whole_number
from ...models import Params, TwoLayer
from ..solution import Solution
from ._checks import positive, require_xor
from .generalising import SIGNS
from .memorising import padded


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
    params: Params = {"W1": np.zeros((width, data.d))}
    params["W1"][:4, :2] = scale * SIGNS
    params["b1"] = padded(np.full(4, -scale), width, -1.0)
    params["W2"] = padded(product / gamma, width)
    params["gamma"] = padded(gamma, width)
    return Solution(TwoLayer(width=width, norm="batch"), params, data)
