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
from ..models import Architecture, Params
from .layers import Array, Layer, layers, magnitudes, over


def memorisation(arch: Architecture, params: Params, data: Dataset) -> float:
    """Return how close every hidden layer is to serving each training point by neurons of its own.

    With c_ij the contribution of neuron j at point i (`layers`), walk from a point to a neuron with
    probability |c_ij|/Σ_k|c_ik| and from there to a point with probability |c_kj|/Σ_l|c_lj|. The
    probability of returning is

        T_ii = Σ_j |c_ij|² / (Σ_k|c_ik| Σ_l|c_lj|)

    and the score of a layer (Σ_i T_ii − 1)/(n − 1), that of the network the least of its layers'.

    Why this: T is similar to a symmetric matrix with eigenvalues in [0, 1], one of them 1, so that
    Σ T_ii = Tr T lies in [1, n] and counts the groups of points that share no neuron with another
    group: q groups, each served by neurons that treat its points alike, have Tr T = q. So the score
    is

    - 1 if and only if no neuron contributes at two points and every point has one that does: one
      neuron a point, as a memorising solution has by definition, or several with the same job;
    - 0 if all neurons contribute in the same proportions at all points;
    - (4 − 1)/(n − 1) for the network of four neurons, one for each value of (x1, x2);
    - about (π − 1)/(n − 1) for a wide ReLU network with random weights: c_ij is half a normal
      variable, and E c²/(E c)² = π.

    Each neuron counts by what it contributes, so dead and negligible ones do not matter. Whether
    the network interpolates is not asked: read the score beside the training loss. Two training
    points with equal inputs share all their neurons, so the score then stays below 1. A point at
    which nothing contributes counts as not memorised.
    """
    return min(map(_of_layer, layers(arch, params, data.x_train)))


def memorisation_by_layer(found: Sequence[Layer]) -> list[float]:
    """Return the score of each hidden layer, the first one first."""
    return [_of_layer(layer) for layer in found]


def features(arch: Architecture, params: Params, data: Dataset) -> float | None:
    """Return the share of the first layer's weight that is on the relevant coordinates.

    With R the relevant coordinates, neuron j has the share ‖w_jR‖²/‖w_j‖² (the bias is no
    coordinate), and the neurons are averaged by what they contribute:

        Σ_j ω_j ‖w_jR‖²/‖w_j‖²,   ω_j = (1/n) Σ_i |c_ij| / Σ_k |c_ik|.

    It is 1 if every neuron that contributes looks at the relevant coordinates alone, and |R|/d on
    average for weights without a preferred coordinate. Averaging by ω_j and not by ‖w_j‖² makes it
    blind to the scale of single neurons, which ReLU leaves free. None if the data set does not know
    its relevant coordinates; 0 if nothing contributes.
    """
    if not data.relevant:
        return None
    return _of_weights(layers(arch, params, data.x_train)[0], params["W1"], data.relevant)


def scores(arch: Architecture, params: Params, data: Dataset) -> dict[str, float]:
    """Return both scores by name; "features" is left out where relevant coordinates are unknown."""
    found = layers(arch, params, data.x_train)
    made = {"memorisation": min(map(_of_layer, found))}
    if data.relevant:
        made["features"] = _of_weights(found[0], params["W1"], data.relevant)
    return made


def sizes(layer: Layer) -> Array:
    """Return ω_j, what each neuron contributes at an average point, of all that is contributed."""
    size = magnitudes(layer.contributions)
    return over(np.ones(len(size)), size.sum(1)) @ size / len(size)


def _of_layer(layer: Layer) -> float:
    size = magnitudes(layer.contributions)
    at_points, of_neurons = size.sum(1), size.sum(0)
    returning = over(np.einsum("ij,ij->i", size, over(size, of_neurons)), at_points)
    n, groups = len(size), float(returning.sum())
    # One point is memorised by whatever contributes at it. Rounding may leave [0, 1] by an ulp.
    score = (groups - 1) / (n - 1) if n > 1 else groups
    return float(np.clip(score, 0.0, 1.0))


def _of_weights(first: Layer, W1: NDArray[np.floating[Any]], relevant: Sequence[int]) -> float:
    squares = np.square(W1, dtype=np.float64)
    share = over(squares[:, list(relevant)].sum(1), squares.sum(1))
    return float(np.clip(sizes(first) @ share, 0.0, 1.0))
