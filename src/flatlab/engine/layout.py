"""The engine's layout of parameters: neurons are contiguous, the bias is one more input."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..models import Chain, Params

Array = NDArray[np.floating[Any]]


class Weights(NamedTuple):
    """W (d', m) with the bias as its last row, M (D−2, m, m), a (m,), γ and β (m,) or (0,)."""

    W: Array
    M: Array
    a: Array
    gamma: Array
    beta: Array


def shares_gamma(arch: Chain) -> bool:
    """Return whether all neurons share one γ; the arrays still repeat it for each neuron."""
    return arch.gamma == "shared"


def inputs(arch: Chain, x: ArrayLike, dtype: DTypeLike) -> Array:
    """Return the inputs with a column of ones if the first layer has a bias."""
    x = np.asarray(x)
    if arch.bias:
        x = np.hstack([x, np.ones((len(x), 1))])
    return np.ascontiguousarray(x, dtype)


def pack(arch: Chain, params: Params, dtype: DTypeLike) -> Weights:
    """Copy named parameters into the engine's arrays."""
    rows = [params["W1"].T, params["b1"][None]] if arch.bias else [params["W1"].T]
    W = np.ascontiguousarray(np.vstack(rows), dtype)
    m = W.shape[1]
    M = np.empty((arch.depth - 2, m, m), dtype)
    for layer in range(2, arch.depth):
        M[layer - 2] = params[f"W{layer}"]
    gamma, beta = (params.get(name, np.empty(0)).astype(dtype) for name in ("gamma", "beta"))
    if shares_gamma(arch):
        gamma = np.full(m, gamma[0])
    return Weights(W, M, params[arch.last_layer].astype(dtype), gamma, beta)


def unpack(arch: Chain, weights: Weights) -> Params:
    """Copy the engine's arrays into named parameters; the inverse of `pack`."""
    W, M, a, gamma, beta = weights
    d = len(W) - arch.bias
    named: Params = {"W1": np.ascontiguousarray(W[:d].T)}
    if arch.bias:
        named["b1"] = W[d].copy()
    named |= {f"W{layer + 2}": middle.copy() for layer, middle in enumerate(M)}
    named[arch.last_layer] = a.copy()
    if len(gamma):
        named["gamma"] = gamma[: 1 if shares_gamma(arch) else len(gamma)].copy()
    if len(beta):
        named["beta"] = beta.copy()
    return named
