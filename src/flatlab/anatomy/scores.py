"""Two numbers for what a network does: does it memorise points, or has it found the features?

Both are functions of architecture, parameters and training set, lie in [0, 1], and do not change if
neurons are permuted, copied or rescaled, or if neurons are added that contribute nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data import Dataset
from ..models import Chain, Params
from .layers import Array, Layer, layers, magnitudes, over


def memorisation(arch: Chain, params: Params, data: Dataset) -> float:
    """Return how close every hidden layer is to giving each training point neurons of its own.

    With c_ij the contribution of neuron j at point i (`layers`), walk from a point to a neuron with
    probability |c_ij|/Σ_k|c_ik| and from there to a point with probability |c_kj|/Σ_l|c_lj|. The
    probability of returning is

        T_ii = Σ_j |c_ij|² / (Σ_k|c_ik| Σ_l|c_lj|)

    and the score of a layer is (Σ_i T_ii − 1)/(n − 1); the network's score is the least of its
    layers'.

    Why this score: T is similar to a symmetric matrix with eigenvalues in [0, 1], one of them 1. So
    Σ T_ii = Tr T lies in [1, n]. It counts the groups of points that share no neuron with another
    group: q groups, each served by neurons that treat its points alike, have Tr T = q. So the score
    is

    - 1 if and only if no neuron contributes at two points and at every point some neuron
      contributes: one neuron for each point, which defines a memorising solution, or several copies
      of it;
    - 0 if all neurons contribute in the same proportions at all points;
    - (4 − 1)/(n − 1) for the network of four neurons, one for each value of (x1, x2);
    - about (π − 1)/(n − 1) for a wide ReLU network with random weights: c_ij is half a normal
      variable, and E c²/(E c)² = π.

    Neurons are weighted by what they contribute, so dead and negligible ones do not matter. The
    score does not ask whether the network interpolates: read it beside the training loss. Two
    training points with equal inputs share all their neurons, so then the score stays below 1. A
    point at which no neuron contributes counts as not memorised.
    """
    return min(map(_of_layer, layers(arch, params, data.x_train)))


def memorisation_by_layer(found: Sequence[Layer]) -> list[float]:
    """Return the score of each hidden layer, the first one first."""
    return [_of_layer(layer) for layer in found]


def features(arch: Chain, params: Params, data: Dataset) -> float | None:
    """Return the share of the first layer's weight that is on the relevant coordinates.

    With R the relevant coordinates, neuron j has the share ‖w_jR‖²/‖w_j‖² (the bias is not a
    coordinate). The mean over neurons is weighted by what they contribute:

        Σ_j ω_j ‖w_jR‖²/‖w_j‖²,   ω_j = (1/n) Σ_i |c_ij| / Σ_k |c_ik|.

    It is 1 if every neuron that contributes looks at the relevant coordinates alone, and |R|/d on
    average for weights without a preferred coordinate. Weighting by ω_j instead of ‖w_j‖² makes it
    independent of the scale of single neurons, which ReLU leaves free. It is None if the data set
    does not know its relevant coordinates, and 0 if no neuron contributes.
    """
    if not data.relevant:
        return None
    return _of_weights(layers(arch, params, data.x_train)[0], params["W1"], data.relevant)


def scores(arch: Chain, params: Params, data: Dataset) -> dict[str, float]:
    """Return both scores by name; "features" is left out if relevant coordinates are unknown."""
    found = layers(arch, params, data.x_train)
    made = {"memorisation": min(map(_of_layer, found))}
    if data.relevant:
        made["features"] = _of_weights(found[0], params["W1"], data.relevant)
    return made


def sizes(layer: Layer) -> Array:
    """Return ω_j, each neuron's share of the contributions at an average point."""
    size = magnitudes(layer.contributions)
    return over(np.ones(len(size)), size.sum(1)) @ size / len(size)


def _of_layer(layer: Layer) -> float:
    size = magnitudes(layer.contributions)
    at_points, of_neurons = size.sum(1), size.sum(0)
    returning = over(np.einsum("ij,ij->i", size, over(size, of_neurons)), at_points)
    n, groups = len(size), float(returning.sum())
    # A single point is memorised if any neuron contributes. Rounding may leave [0, 1] by an ulp.
    score = (groups - 1) / (n - 1) if n > 1 else groups
    return float(np.clip(score, 0.0, 1.0))


def _of_weights(first: Layer, W1: NDArray[np.floating[Any]], relevant: Sequence[int]) -> float:
    squares = np.square(W1, dtype=np.float64)
    share = over(squares[:, list(relevant)].sum(1), squares.sum(1))
    return float(np.clip(sizes(first) @ share, 0.0, 1.0))
