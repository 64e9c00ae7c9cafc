"""Two-layer networks with standard Batch- or LayerNorm, any batch size.

f_i = Σ_j a_j (γ_j z_ij + β_j) with z_ij = (u_ij − μ)/s and s² = v + ε. Mean μ and variance v are
over all n examples for neuron j, or over the m neurons for example i. With c = a ⊙ γ, weights
g_i = ℓ'(f_i)/B, G = Σ_i g_i and Q_j = Σ_i g_i z_ij, the gradient in the first layer is Dᵀ X,

    BatchNorm:  D_kj = σ'(h_kj) (c_j/s_j) ( [k ∈ batch] g_k − G/n − z_kj Q_j/n ),
    LayerNorm:  D_ij = σ'(h_ij) (g_i/s_i) ( c_j − c̄ − z_ij (c·z_i)/m ),

and the gradients in a, γ and β are γ ⊙ Q + G β, a ⊙ Q and G a. This kernel is separate, so that
other runs do not wait for its compilation.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .philox import batch_of
from .room import room
from .scalar import (
    DECAY,
    FAST,
    LR,
    MAX_NORM,
    NORM_EPSILON,
    ONE,
    PLAIN,
    STANDARD_BATCH,
    ZERO,
    activate,
    ascent_length,
    descend,
    dot,
    project,
    shifted,
    slope,
)


@njit(cache=True, fastmath=FAST, inline="always")
def _affine(a, gamma, beta, G, Q, G_a, G_gamma, G_beta):
    for t in range(a.shape[0]):
        G_a[t] = gamma[t] * Q[t] + G * beta[t]
        G_gamma[t] = a[t] * Q[t]
        G_beta[t] = G * a[t]


@njit(cache=True, fastmath=FAST, inline="always")
def _gradient_layer(
    X, y, W, a, gamma, beta, activation, loss, hyper, H, U, S, work, G_W, G_a, G_gamma, G_beta
):
    """Gradient of the mean loss over the rows of X with LayerNorm; return whether finite."""
    zero, one = hyper[ZERO], hyper[ONE]
    c, Q = work[0], work[1]
    np.dot(X, W, H)
    activate(activation, H.ravel(), U.ravel(), S.ravel(), zero, one)
    batch, m = X.dtype.type(X.shape[0]), X.dtype.type(a.shape[0])
    shift = dot(a, beta, zero)
    mean_c, G = zero, zero
    finite = True
    for t in range(a.shape[0]):
        c[t] = a[t] * gamma[t]
        mean_c += c[t]
        Q[t] = zero
    mean_c /= m
    for i in range(X.shape[0]):
        u, s = U[i], S[i]
        mean, variance = zero, zero
        for t in range(a.shape[0]):
            mean += u[t]
        mean /= m
        for t in range(a.shape[0]):
            u[t] -= mean
            variance += u[t] * u[t]
        inverse = one / np.sqrt(variance / m + hyper[NORM_EPSILON])
        for t in range(a.shape[0]):
            u[t] *= inverse
        F = dot(c, u, zero)
        f = F + shift
        # numba's isfinite tests f − f, which reassociation turns into 0 if f is a sum. With an
        # infinite variance the outputs, β alone, would be finite.
        finite = finite and abs(f) < np.inf and inverse > zero
        g = slope(loss, f, y[i], hyper) / batch
        G += g
        for t in range(a.shape[0]):
            Q[t] += g * u[t]
            s[t] *= g * inverse * (c[t] - mean_c - u[t] * F / m)
    np.dot(X.T, S, G_W)
    _affine(a, gamma, beta, G, Q, G_a, G_gamma, G_beta)
    return finite


@njit(cache=True, fastmath=FAST, inline="always")
def _standardise_columns(U, mean, inverse, epsilon, zero, one):
    """Turn U into z in place, and fill 1/s."""
    n = U.dtype.type(U.shape[0])
    mean[:] = zero
    inverse[:] = zero
    for i in range(U.shape[0]):
        u = U[i]
        for t in range(u.shape[0]):
            mean[t] += u[t]
    for t in range(mean.shape[0]):
        mean[t] /= n
    for i in range(U.shape[0]):
        u = U[i]
        for t in range(u.shape[0]):
            u[t] -= mean[t]
            inverse[t] += u[t] * u[t]
    for t in range(mean.shape[0]):
        inverse[t] = one / np.sqrt(inverse[t] / n + epsilon)
    for i in range(U.shape[0]):
        u = U[i]
        for t in range(u.shape[0]):
            u[t] *= inverse[t]


@njit(cache=True, fastmath=FAST, inline="always")
def _gradient_batch(
    X, rows, y, W, a, gamma, beta, activation, loss, hyper, H, U, S, weights, work,
    G_W, G_a, G_gamma, G_beta,
):  # fmt: skip
    """Gradient of the mean loss over `rows` with BatchNorm over all of X; return whether finite."""
    zero, one = hyper[ZERO], hyper[ONE]
    inverse, Q, c = work[0], work[1], work[2]
    np.dot(X, W, H)
    activate(activation, H.ravel(), U.ravel(), S.ravel(), zero, one)
    _standardise_columns(U, c, inverse, hyper[NORM_EPSILON], zero, one)
    shift = dot(a, beta, zero)
    G = zero
    finite = True
    batch, n = X.dtype.type(rows.shape[0]), X.dtype.type(X.shape[0])
    for t in range(a.shape[0]):
        c[t] = a[t] * gamma[t]
        Q[t] = zero
        finite = finite and inverse[t] > zero  # see `_gradient_layer`
    weights[:] = zero  # one for each training point; 0 outside the batch
    for i in range(rows.shape[0]):
        z = U[rows[i]]
        f = dot(c, z, zero) + shift
        finite = finite and abs(f) < np.inf
        g = slope(loss, f, y[i], hyper) / batch
        weights[rows[i]] += g  # an example may occur twice
        G += g
        for t in range(a.shape[0]):
            Q[t] += g * z[t]
    _affine(a, gamma, beta, G, Q, G_a, G_gamma, G_beta)
    for t in range(a.shape[0]):
        c[t] *= inverse[t]
        Q[t] /= n
    for k in range(X.shape[0]):
        z, s, own = U[k], S[k], weights[k] - G / n
        for t in range(a.shape[0]):
            s[t] *= c[t] * (own - z[t] * Q[t])
    np.dot(X.T, S, G_W)
    return finite


@njit(cache=True, fastmath=FAST, error_model="numpy")
def train(
    W, a, gamma, beta, X, y, first, last, epoch0, batch, keys, activation, norm, loss, ascent, hyper
):
    """Run steps first..last−1 of a phase in place; see `two_layer_batch.train`."""
    n = X.shape[0]
    zero, one = hyper[ZERO], hyper[ONE]
    keep = one - hyper[LR] * hyper[DECAY]
    order, noise = np.empty(n, np.int64), np.zeros(n, np.int64)
    G_W, up_W = np.empty_like(W), np.empty_like(W)
    G, up = room(3, len(a), W), room(3, len(a), W)  # rows for a, γ and β
    visited = n if norm == STANDARD_BATCH else batch
    H, U, S = room(visited, len(a), W), room(visited, len(a), W), room(visited, len(a), W)
    weights, work = np.empty(n, W.dtype), room(3, len(a), W)
    drawn = -1
    for step in range(first, last):
        rows, target, drawn = batch_of(step, batch, drawn, keys, epoch0, order, noise, y, hyper)
        s, finite = zero, True
        at_W, at_a, at_gamma, at_beta = W, a, gamma, beta
        for stage in range(1 if ascent == PLAIN else 2):
            if stage == 1:
                shifted(up_W.ravel(), W.ravel(), s, G_W.ravel())
                shifted(up[0], a, s, G[0])
                shifted(up[1], gamma, s, G[1])
                shifted(up[2], beta, s, G[2])
                at_W, at_a, at_gamma, at_beta = up_W, up[0], up[1], up[2]
            if norm == STANDARD_BATCH:
                finite = finite and _gradient_batch(
                    X, rows, target, at_W, at_a, at_gamma, at_beta, activation, loss, hyper,
                    H, U, S, weights, work, G_W, G[0], G[1], G[2],
                )  # fmt: skip
            else:
                finite = finite and _gradient_layer(
                    X[rows], target, at_W, at_a, at_gamma, at_beta, activation, loss, hyper,
                    H[: len(rows)], U[: len(rows)], S[: len(rows)], work, G_W, G[0], G[1], G[2],
                )  # fmt: skip
            if stage == 0:
                flat, rest = G_W.ravel(), G.ravel()
                squared = dot(flat, flat, zero) + dot(rest, rest, zero)
                s = ascent_length(ascent, squared, hyper)
        if not finite:
            return step
        descend(W.ravel(), keep, hyper[LR], G_W.ravel())
        descend(a, keep, hyper[LR], G[0])
        descend(gamma, keep, hyper[LR], G[1])
        descend(beta, keep, hyper[LR], G[2])
        if hyper[MAX_NORM] > zero:
            project(W, hyper[MAX_NORM], zero)
    return -1
