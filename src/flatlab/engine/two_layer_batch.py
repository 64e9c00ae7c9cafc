"""Two-layer networks, any batch size and normalisation: two matrix products a gradient.

For a batch with weights g_i = ℓ'(f_i)/B the gradient in the first layer is Dᵀ X, where row k of D
holds ∂(Σ_i g_i f_i)/∂h_k. Without normalisation and with LayerNorm only the batch's rows matter.
With simplified BatchNorm every training point enters through rms_j = (Σ_k u_kj²/n)^{1/2}:

    f_i = Σ_j a_j γ_j u_ij / rms_j
    D_kj = a_j γ_j σ'(h_kj) ( [k ∈ batch] g_k / rms_j − u_kj q_j / (n rms_j³) ),  q_j = Σ_i g_i u_ij

A neuron that is dead on the whole training set (rms_j = 0) outputs 0 and has no gradient.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .philox import permutation, signs
from .scalar import (
    BATCH,
    DECAY,
    FAST,
    LAYER,
    LN_EPSILON,
    LR,
    MAX_NORM,
    NOISE,
    ONE,
    PLAIN,
    ZERO,
    activate,
    ascent_length,
    dot,
    slope,
)


@njit(cache=True, fastmath=FAST, inline="always")
def _normalise_rows(U, S, a, D, epsilon, zero, one):
    """LayerNorm: scale rows of U to u/N in place; put σ'(h) ∂f/∂u into D; return the outputs."""
    f = np.empty(U.shape[0], U.dtype)
    for i in range(U.shape[0]):
        u, s, d = U[i], S[i], D[i]
        size = np.sqrt(dot(u, u, zero))
        outside = size > epsilon
        inverse = one / (size if outside else epsilon)
        f[i] = dot(a, u, zero) * inverse
        pull = f[i] * inverse if outside else zero
        for t in range(a.shape[0]):
            u[t] *= inverse
            d[t] = s[t] * (a[t] * inverse - pull * u[t])
    return f


@njit(cache=True, fastmath=FAST, inline="always")
def _rms_inverse(U, zero, one):
    """Return 1/rms_j over the rows of U, and 0 for a dead neuron."""
    inverse = np.zeros(U.shape[1], U.dtype)
    for i in range(U.shape[0]):
        u = U[i]
        for t in range(u.shape[0]):
            inverse[t] += u[t] * u[t]
    n = U.dtype.type(U.shape[0])
    for t in range(inverse.shape[0]):
        inverse[t] = one / np.sqrt(inverse[t] / n) if inverse[t] != zero else zero
    return inverse


@njit(cache=True, fastmath=FAST, inline="always")
def _gradient_rows(X, y, W, a, activation, norm, loss, hyper, G_W, G_a):
    """Gradient of the mean loss over the rows of X, without BatchNorm; return whether finite."""
    zero, one = hyper[ZERO], hyper[ONE]
    H = np.dot(X, W)
    U, D = np.empty_like(H), np.empty_like(H)
    activate(activation, H.ravel(), U.ravel(), D.ravel(), zero, one)
    if norm == LAYER:
        f = _normalise_rows(U, D, a, D, hyper[LN_EPSILON], zero, one)
    else:
        f = np.dot(U, a)
        for i in range(D.shape[0]):
            d = D[i]
            for t in range(a.shape[0]):
                d[t] *= a[t]
    finite = True
    batch = X.dtype.type(X.shape[0])
    for i in range(D.shape[0]):
        finite = finite and np.isfinite(f[i])
        f[i] = slope(loss, f[i], y[i], hyper) / batch
        d = D[i]
        for t in range(a.shape[0]):
            d[t] *= f[i]
    np.dot(X.T, D, G_W)
    np.dot(U.T, f, G_a)
    return finite


@njit(cache=True, fastmath=FAST, inline="always")
def _gradient_batch_norm(X, rows, y, W, a, gamma, activation, loss, hyper, G_W, G_a, G_gamma):
    """Gradient of the mean loss over `rows`, statistics over all of X; return whether finite."""
    zero, one = hyper[ZERO], hyper[ONE]
    H = np.dot(X, W)
    U, D = np.empty_like(H), np.empty_like(H)
    activate(activation, H.ravel(), U.ravel(), D.ravel(), zero, one)
    inverse = _rms_inverse(U, zero, one)
    weight, q = a * gamma * inverse, np.zeros_like(a)
    g = np.zeros(X.shape[0], X.dtype)
    finite = True
    batch = X.dtype.type(rows.shape[0])
    for i in range(rows.shape[0]):
        u = U[rows[i]]
        f = dot(weight, u, zero)
        finite = finite and np.isfinite(f)
        g[rows[i]] = slope(loss, f, y[i], hyper) / batch
        for t in range(a.shape[0]):
            q[t] += g[rows[i]] * u[t]
    n = X.dtype.type(X.shape[0])
    for t in range(a.shape[0]):
        G_a[t] = gamma[t] * inverse[t] * q[t]
        G_gamma[t] = a[t] * inverse[t] * q[t]
        q[t] *= weight[t] * inverse[t] * inverse[t] / n
    for k in range(D.shape[0]):
        u, d = U[k], D[k]
        for t in range(a.shape[0]):
            d[t] *= g[k] * weight[t] - u[t] * q[t]
    np.dot(X.T, D, G_W)
    return finite


@njit(cache=True, fastmath=FAST, inline="always")
def _gradient(X, rows, y, W, a, gamma, activation, norm, loss, hyper, G_W, G_a, G_gamma):
    if norm == BATCH:
        return _gradient_batch_norm(
            X, rows, y, W, a, gamma, activation, loss, hyper, G_W, G_a, G_gamma
        )
    return _gradient_rows(X[rows], y, W, a, activation, norm, loss, hyper, G_W, G_a)


@njit(cache=True, fastmath=FAST)
def train(
    W, a, gamma, X, y, first, last, epoch0, batch, keys, activation, norm, loss, ascent, hyper
):
    """Run steps first..last−1 of a phase in place; return the step that diverged, or −1.

    `gamma` has length 0 unless the norm is "batch". The other arguments are as in
    `two_layer_single.kernel`, with steps of `batch` examples in place of blocks.
    """
    n = X.shape[0]
    zero, one = hyper[ZERO], hyper[ONE]
    keep = one - hyper[LR] * hyper[DECAY]
    steps = (n + batch - 1) // batch
    order, noise = np.empty(n, np.int64), np.zeros(n, np.int64)
    G_W, G_a, G_gamma = np.empty_like(W), np.empty_like(a), np.empty_like(gamma)
    drawn = -1
    for step in range(first, last):
        epoch = step // steps
        if epoch != drawn:
            permutation(keys[0], epoch0 + epoch, order)
            if hyper[NOISE] > zero:
                signs(keys[1], epoch0 + epoch, noise)
            drawn = epoch
        start = (step - epoch * steps) * batch
        rows = order[start : start + batch]
        target = y[rows] + hyper[NOISE] * noise[start : start + batch].astype(W.dtype)
        s, finite = zero, True
        G_W[:], G_a[:], G_gamma[:] = zero, zero, zero
        for stage in range(1 if ascent == PLAIN else 2):
            up_W, up_a, up_gamma = W + s * G_W, a + s * G_a, gamma + s * G_gamma
            finite = finite and _gradient(
                X, rows, target, up_W, up_a, up_gamma, activation, norm, loss, hyper,
                G_W, G_a, G_gamma,
            )  # fmt: skip
            if stage == 0:
                flat = G_W.ravel()
                squared = dot(flat, flat, zero) + dot(G_a, G_a, zero) + dot(G_gamma, G_gamma, zero)
                s = ascent_length(ascent, squared, hyper)
        if not finite:
            return step
        W *= keep
        W -= hyper[LR] * G_W
        a *= keep
        a -= hyper[LR] * G_a
        gamma *= keep
        gamma -= hyper[LR] * G_gamma
        if hyper[MAX_NORM] > zero:
            flat = W.ravel()
            squared = dot(flat, flat, zero)
            if squared > hyper[MAX_NORM] * hyper[MAX_NORM]:
                W *= hyper[MAX_NORM] / np.sqrt(squared)
    return -1
