"""What each hidden neuron does at each training point: its activation and its contribution."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..models import Chain, Params
from ..models.chains import activated

Array = NDArray[np.float64]


class Layer(NamedTuple):
    """One hidden layer on some points; arrays have shape (points, neurons), in float64.

    Attributes:
        activations: u_ij, before any normalisation.
        contributions: c_ij = û_ij ∂f(x_i)/∂û_ij with û the activations as the next layer sees them,
            i.e. after normalisation. In every layer Σ_j c_ij = f(x_i).
    """

    activations: Array
    contributions: Array


def layers(arch: Chain, params: Params, x: ArrayLike) -> list[Layer]:
    """Return the hidden layers at the training inputs, the first one first.

    For f = Σ_j a_j û_j the contribution of neuron j at x_i is a_j û_ij. Below the last hidden layer
    of a deep ReLU network it is u_ij ∂f(x_i)/∂u_ij, and these sum to f(x_i) as well: the layers
    above have no bias, so f is linear in u along u. Rescaling a neuron, w_j → c w_j and its
    outgoing weights by 1/c, changes no contribution.

    Simplified BatchNorm takes its statistics from `x`, so `x` must be all training inputs.
    """
    p: Params = {name: np.asarray(value, np.float64) for name, value in params.items()}
    h = np.asarray(x, np.float64) @ p["W1"].T
    if "b1" in p:
        h += p["b1"]
    if not arch.stacked:
        u = activated(arch, h)
        return [Layer(u, _normalised(arch, u, p) * p["W2"])]
    chain = [np.maximum(h, 0)]
    for layer in range(2, arch.depth):
        chain.append(np.maximum(chain[-1] @ p[f"W{layer}"].T, 0))
    slope = np.broadcast_to(p[f"W{arch.depth}"], chain[-1].shape)
    found = [Layer(chain[-1], chain[-1] * slope)]
    for layer in range(arch.depth - 1, 1, -1):
        slope = np.where(chain[layer - 1] > 0, slope, 0) @ p[f"W{layer}"]
        found.append(Layer(chain[layer - 2], chain[layer - 2] * slope))
    return found[::-1]


def magnitudes(contributions: Array) -> Array:
    """Return |c_ij| divided by the largest of them, so that sums neither overflow nor vanish."""
    size = np.abs(contributions)
    largest = size.max(initial=0.0)
    if largest > 0:
        size /= largest
    return size


def over(values: Array, totals: Array) -> Array:
    """Return values/totals, and zero where the total is zero.

    >>> over(np.array([3.0, 0.0]), np.array([4.0, 0.0])).tolist()
    [0.75, 0.0]
    """
    found: Array = values / np.where(totals > 0, totals, 1.0)
    return found


def _normalised(arch: Chain, u: Array, params: Params) -> Array:
    if arch.norm == "layer":
        size = np.linalg.norm(u, axis=1, keepdims=True)
        made: Array = u / np.maximum(size, arch.ln_epsilon)
        return made
    if arch.norm == "batch":
        mean_square = (u**2).mean(0)
        alive = mean_square > 0
        rms = np.sqrt(np.where(alive, mean_square, 1))
        return np.where(alive, params["gamma"] * u / rms, 0)
    return u
