"""Rescaling neurons, (w, b)_j → c_j (w, b)_j and a_j → a_j/c_j: a ReLU network stays the same."""

from __future__ import annotations

import numpy as np

from ...errors import UserError
from ..solution import Array, Solution


def balanced(solution: Solution) -> Solution:
    """Return the flattest of all rescalings of a two-layer ReLU network.

    Neuron j adds (2/n) Σ_i 1[active] (a_j² ‖x'_i‖² + h_ij²) to the trace, with h_ij its activation
    at x_i. Rescaled by c it adds A/c² + B c², which is least at c⁴ = A/B, where it is 2√(AB).
    """
    _require_plain(solution)
    activations = solution.hidden()[0]
    sizes = np.sum(solution.data.x_train**2, 1) + ("b1" in solution.params)
    A = solution.params["W2"] ** 2 * ((activations > 0) * sizes[:, None]).sum(0)
    B = (activations**2).sum(0)
    alive = (A > 0) & (B > 0)
    c = np.where(alive, np.where(alive, A, 1) / np.where(alive, B, 1), 1.0) ** 0.25
    return rescaled(solution, c)


def norm_balanced(solution: Solution) -> Solution:
    """Return the rescaling of Lemma A.4, ‖w_j‖ = √d |a_j|.

    It makes ‖W1‖² + d‖W2‖² = 2√d Σ_j ‖w_j‖|a_j|, the least of all rescalings.
    """
    W1, W2 = solution.params["W1"], solution.params["W2"]
    norms, outer = np.linalg.norm(W1, axis=1), np.abs(W2)
    alive = (norms > 0) & (outer > 0)
    ratio = np.sqrt(W1.shape[1]) * np.where(alive, outer, 1) / np.where(alive, norms, 1)
    return rescaled(solution, np.where(alive, ratio, 1.0) ** 0.5)


def rescaled(solution: Solution, c: Array) -> Solution:
    """Return the network with neuron j rescaled by c_j > 0."""
    _require_plain(solution)
    changed = {"W1": solution.params["W1"] * c[:, None], "W2": solution.params["W2"] / c}
    if "b1" in solution.params:
        changed["b1"] = solution.params["b1"] * c
    return solution.with_params(**changed)


def _require_plain(solution: Solution) -> None:
    arch = solution.arch
    if arch.stacked or arch.norm is not None or arch.activation != "relu":
        raise UserError("balancing is for two-layer ReLU networks without normalisation")
