"""Scalar functions of all kernels: codes, loss derivatives, the length of the ascent.

Kernels are compiled once for each dtype and take options as integer codes; branches on a code are
outside the loops over neurons, so the loops vectorise.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .softplus import softplus

# Reassociation lets reductions vectorise. NaN and infinity keep their meaning, to show divergence.
FAST = {"reassoc", "contract", "arcp", "nsz"}

ACTIVATION_CODES = {"relu": 0, "softplus": 1, "tanh": 2, "identity": 3}
NORMS = {None: 0, "layer": 1, "batch": 2, "standard_layer": 3, "standard_batch": 4}
LOSS_CODES = {"mse": 0, "logistic": 1}
ASCENTS = {"sgd": 0, "label_noise": 0, "sam": 1, "usam": 2}
NORM_RULES = {None: 0, "each": 1, "held": 2}
GAMMA_RULES = {None: 0, "unperturbed": 1, "fixed": 2}
RELU, SOFTPLUS, TANH = (
    ACTIVATION_CODES["relu"],
    ACTIVATION_CODES["softplus"],
    ACTIVATION_CODES["tanh"],
)
NONE, LAYER, BATCH = NORMS[None], NORMS["layer"], NORMS["batch"]
STANDARD_BATCH = NORMS["standard_batch"]
LOGISTIC = LOSS_CODES["logistic"]
PLAIN, NORMALISED = ASCENTS["sgd"], ASCENTS["sam"]
EACH, HELD = NORM_RULES["each"], NORM_RULES["held"]
UNPERTURBED, FIXED = GAMMA_RULES["unperturbed"], GAMMA_RULES["fixed"]

# Positions in the array of hyper-parameters, which has the dtype of the weights so that no kernel
# computes in float64 by accident.
LR, RHO, DECAY, NOISE, MAX_NORM, SMOOTHING, LN_EPSILON, ZERO, ONE, TINY = range(10)
BIAS_LR, BIAS_DECAY, INPUT_NOISE, NORM_EPSILON, MOMENTUM = range(10, 15)

# Positions in the integer array of rules: one γ for all neurons; a code of `GAMMA_RULES`;
# statistics without gradients through them; a second gradient on another batch; the row of a bias
# with separate steps, or −1.
SHARED, GAMMA, CONSTANT, OTHER, BIAS_ROW = range(5)


@njit(cache=True, inline="always")
def slope(loss, f, y, hyper):
    """Return ℓ'(f) for one output: 2(f − y), or sigmoid(f) − q with q = ½ + y(½ − p)."""
    one = hyper[ONE]
    if loss == LOGISTIC:
        half = one / (one + one)
        return one / (one + math.exp(-f)) - (half + y * (half - hyper[SMOOTHING]))
    return (one + one) * (f - y)


@njit(cache=True, inline="always")
def ascent_length(ascent, squared_norm, hyper):
    """Return s such that the ascent goes to θ + s g, given ‖g‖²; 0 at a zero gradient.

    A gradient counts as zero if its square is below the smallest normal number of the dtype.
    """
    if squared_norm < hyper[TINY]:
        return hyper[ZERO]
    if ascent == NORMALISED:
        return hyper[RHO] / np.sqrt(squared_norm)
    return hyper[RHO]


@njit(cache=True, fastmath=FAST, inline="always")
def dot(x, y, zero):
    """Return x·y, summed in the dtype of `zero`."""
    total = zero
    for t in range(x.shape[0]):
        total += x[t] * y[t]
    return total


@njit(cache=True, fastmath=FAST, inline="always")
def shifted(out, x, s, y):
    """Fill out = x + s y, over flat arrays that do not overlap (numba's expressions are slower)."""
    for t in range(x.shape[0]):
        out[t] = x[t] + s * y[t]


@njit(cache=True, fastmath=FAST, inline="always")
def descend(x, keep, lr, y):
    """X ← keep x − lr y, over flat arrays."""
    for t in range(x.shape[0]):
        x[t] = keep * x[t] - lr * y[t]


@njit(cache=True, fastmath=FAST, inline="always")
def project(W, limit, zero):
    """Scale W to the ball of Frobenius radius `limit`, if it is outside."""
    flat = W.ravel()
    squared = dot(flat, flat, zero)
    if squared > limit * limit:
        W *= limit / np.sqrt(squared)


@njit(cache=True, fastmath=FAST, inline="always")
def gather(v, momentum, y, decay, x):
    """V ← momentum v + y + decay x, over flat arrays."""
    for t in range(x.shape[0]):
        v[t] = momentum * v[t] + y[t] + decay * x[t]


@njit(cache=True, fastmath=FAST, inline="always")
def of_gamma(gradient, rules, ascends, zero):
    """Change the neurons' gradients in γ as `rules` say.

    `ascends` says whether they are for an ascent. A shared γ gets the sum, written to all neurons.
    """
    if rules[GAMMA] == FIXED or (ascends and rules[GAMMA] == UNPERTURBED):
        gradient[:] = zero
    elif rules[SHARED]:
        total = zero
        for t in range(gradient.shape[0]):
            total += gradient[t]
        gradient[:] = total


@njit(cache=True, fastmath=FAST, inline="always")
def activate(activation, h, u, slopes, zero, one):
    """Fill u = σ(h) and slopes = σ'(h), elementwise over flat arrays."""
    if activation == RELU:
        for t in range(h.shape[0]):
            off = h[t] <= zero  # NaN is not off: a diverged weight shows in f
            u[t] = zero if off else h[t]
            slopes[t] = zero if off else one
    elif activation == SOFTPLUS:
        for t in range(h.shape[0]):
            u[t], slopes[t] = softplus(h[t])
    elif activation == TANH:
        for t in range(h.shape[0]):
            u[t] = np.tanh(h[t])
            slopes[t] = one - u[t] * u[t]
    else:
        for t in range(h.shape[0]):
            u[t] = h[t]
            slopes[t] = one
