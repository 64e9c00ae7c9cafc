"""Deep ReLU networks: the rank-one form for single examples, matrix products for batches.

Weights: W (d', m) is the first layer transposed, with the bias (if any) as its last row; M
(D−2, m, m) are the middle layers; a (m,) is the last layer. With u_l the activations and
δ_l = ∂f/∂h_l, every layer's gradient for one example is an outer product δ_{l+1} u_lᵀ. So at
θ + s g

    h̃_{l+1} = M_l ũ_l + s δ_{l+1} (u_l·ũ_l),
    M̃_lᵀ δ̃_{l+1} = M_lᵀ δ̃_{l+1} + s u_l (δ_{l+1}·δ̃_{l+1}),

and no perturbed matrix is ever formed. The backward pass skips rows of M_l with δ_{l+1} = 0.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .philox import batch_of, signs, visits
from .scalar import (
    DECAY,
    FAST,
    LR,
    MAX_NORM,
    NOISE,
    ONE,
    PLAIN,
    ZERO,
    ascent_length,
    descend,
    dot,
    shifted,
    slope,
)


@njit(cache=True, fastmath=FAST, inline="always")
def _project(W, limit, zero):
    """Scale W to the ball of Frobenius radius `limit`, if it is outside.

    As `scalar.project`, but with the rounding that stored runs of this kernel have.
    """
    flat = W.ravel()
    squared = dot(flat, flat, zero)
    if squared > limit * limit:
        factor = limit / np.sqrt(squared)
        for t in range(flat.shape[0]):
            flat[t] *= factor


@njit(cache=True, fastmath=FAST, inline="always")
def _transposed_product(matrix, rows, v):
    """Fill v = matrixᵀ rows, reading only the rows of the matrix where `rows` is not zero."""
    v[:] = 0
    active = np.nonzero(rows)[0]
    i = 0
    while i + 4 <= active.shape[0]:
        r0, r1, r2, r3 = active[i], active[i + 1], active[i + 2], active[i + 3]
        c0, c1, c2, c3 = rows[r0], rows[r1], rows[r2], rows[r3]
        m0, m1, m2, m3 = matrix[r0], matrix[r1], matrix[r2], matrix[r3]
        for t in range(v.shape[0]):
            v[t] += c0 * m0[t] + c1 * m1[t] + c2 * m2[t] + c3 * m3[t]
        i += 4
    while i < active.shape[0]:
        c0, m0 = rows[active[i]], matrix[active[i]]
        for t in range(v.shape[0]):
            v[t] += c0 * m0[t]
        i += 1


@njit(cache=True, fastmath=FAST, inline="always")
def _pass(h0, M, a, s, squared_x, U, Delta, new_U, new_Delta, last, zero):
    """Run one example forward and backward at θ + s g; return f, fill new_U, new_Delta and `last`.

    `last` is ã. U and Delta are the example's values at θ (zero in the first pass, with s = 0).
    """
    layers = M.shape[0]
    for t in range(a.shape[0]):
        h = h0[t] + s * squared_x * Delta[0, t]
        new_U[0, t] = zero if h <= zero else h
        last[t] = a[t] + s * U[layers, t]
    for layer in range(layers):
        u = new_U[layer]
        h_next = np.dot(M[layer], u)
        shift = s * dot(U[layer], u, zero)
        u_next, delta = new_U[layer + 1], Delta[layer + 1]
        for t in range(a.shape[0]):
            h = h_next[t] + shift * delta[t]
            u_next[t] = zero if h <= zero else h
    f = dot(last, new_U[layers], zero)
    for t in range(a.shape[0]):
        new_Delta[layers, t] = zero if new_U[layers, t] <= zero else last[t]
    for layer in range(layers - 1, -1, -1):
        v, u = new_Delta[layer], U[layer]
        _transposed_product(M[layer], new_Delta[layer + 1], v)
        shift = s * dot(Delta[layer + 1], new_Delta[layer + 1], zero)
        for t in range(a.shape[0]):
            v[t] = zero if new_U[layer, t] <= zero else v[t] + shift * u[t]
    return f


@njit(cache=True, fastmath=FAST, inline="always")
def _squared_norm(U, Delta, squared_x, zero):
    """Return ‖∇f‖² = ‖x‖²‖δ_0‖² + Σ_l ‖u_l‖²‖δ_{l+1}‖² + ‖u_last‖²."""
    total = squared_x * dot(Delta[0], Delta[0], zero)
    for layer in range(U.shape[0] - 1):
        total += dot(U[layer], U[layer], zero) * dot(Delta[layer + 1], Delta[layer + 1], zero)
    return total + dot(U[-1], U[-1], zero)


@njit(cache=True, fastmath=FAST, inline="always")
def _subtract_outer(matrix, left, right, keep, one):
    """Matrix ← keep · matrix − left rightᵀ, touching only rows that change."""
    for r in range(matrix.shape[0]):
        row, c = matrix[r], left[r]
        if keep != one:
            for t in range(row.shape[0]):
                row[t] = keep * row[t] - c * right[t]
        elif c != 0:
            for t in range(row.shape[0]):
                row[t] -= c * right[t]


@njit(cache=True, fastmath=FAST, error_model="numpy")
def train_single(W, M, a, X, y, first, last, epoch0, keys, loss, ascent, hyper):
    """Run steps first..last−1 of a phase, one example each; return the diverged step, or −1."""
    n, layers, m = X.shape[0], M.shape[0], a.shape[0]
    zero, one = hyper[ZERO], hyper[ONE]
    keep = one - hyper[LR] * hyper[DECAY]
    order, noise = np.empty(n, np.int64), np.zeros(n, np.int64)
    U, Delta = np.zeros((layers + 1, m), W.dtype), np.zeros((layers + 1, m), W.dtype)
    up_U, up_Delta, up_a = np.zeros_like(U), np.zeros_like(U), np.zeros_like(a)
    drawn = -1
    for step in range(first, last):
        epoch = step // n
        if epoch != drawn:
            visits(keys, epoch0 + epoch, order)
            if hyper[NOISE] > zero:
                signs(keys[1], epoch0 + epoch, noise)
            drawn = epoch
        i = order[step - epoch * n]
        x = X[i]
        target = y[i] + hyper[NOISE] * W.dtype.type(noise[step - epoch * n])
        h0 = np.dot(x, W)
        squared_x = dot(x, x, zero)
        s, gradient, f = zero, zero, zero
        up_U[:], up_Delta[:] = zero, zero
        for stage in range(1 if ascent == PLAIN else 2):
            U, up_U = up_U, U
            Delta, up_Delta = up_Delta, Delta
            f = _pass(h0, M, a, s, squared_x, U, Delta, up_U, up_Delta, up_a, zero)
            gradient = slope(loss, f, target, hyper)
            if stage == 0:
                squared = gradient * gradient * _squared_norm(up_U, up_Delta, squared_x, zero)
                s = ascent_length(ascent, squared, hyper) * gradient
        if not np.isfinite(f):
            return step
        factor = hyper[LR] * gradient
        for t in range(m):
            a[t] = keep * a[t] - factor * up_U[layers, t]
        for layer in range(layers):
            _subtract_outer(M[layer], factor * up_Delta[layer + 1], up_U[layer], keep, one)
        _subtract_outer(W, factor * x, up_Delta[0], keep, one)
        if hyper[MAX_NORM] > zero:
            _project(W, hyper[MAX_NORM], zero)
    return -1


@njit(cache=True, fastmath=FAST, inline="always")
def _gradient(X, y, W, M, a, loss, hyper, G_W, G_M, G_a):
    """Gradient of the mean loss over the rows of X; return whether the outputs are finite."""
    zero = hyper[ZERO]
    layers, batch = M.shape[0], X.dtype.type(X.shape[0])
    U = np.empty((layers + 1, X.shape[0], a.shape[0]), X.dtype)
    for layer in range(layers + 1):
        H = np.dot(X, W) if layer == 0 else np.dot(U[layer - 1], M[layer - 1].T)
        h, u = H.ravel(), U[layer].ravel()
        for t in range(h.shape[0]):
            u[t] = zero if h[t] <= zero else h[t]
    f = np.dot(U[layers], a)
    finite = True
    for i in range(f.shape[0]):
        finite = finite and np.isfinite(f[i])
        f[i] = slope(loss, f[i], y[i], hyper) / batch
    np.dot(U[layers].T, f, G_a)
    D = np.empty((X.shape[0], a.shape[0]), X.dtype)
    for i in range(f.shape[0]):
        for t in range(a.shape[0]):
            D[i, t] = zero if U[layers, i, t] <= zero else f[i] * a[t]
    for layer in range(layers - 1, -1, -1):
        np.dot(D.T, U[layer], G_M[layer])
        D = np.dot(D, M[layer])
        d, u = D.ravel(), U[layer].ravel()
        for t in range(d.shape[0]):
            if u[t] <= zero:
                d[t] = zero
    np.dot(X.T, D, G_W)
    return finite


@njit(cache=True, fastmath=FAST, error_model="numpy")
def train_batch(W, M, a, X, y, first, last, epoch0, batch, keys, loss, ascent, hyper):
    """Run steps first..last−1 of a phase, `batch` examples each; return as in `train_single`."""
    n = X.shape[0]
    zero, one = hyper[ZERO], hyper[ONE]
    keep = one - hyper[LR] * hyper[DECAY]
    order, noise = np.empty(n, np.int64), np.zeros(n, np.int64)
    G_W, G_M, G_a = np.empty_like(W), np.empty_like(M), np.empty_like(a)
    up_W, up_M, up_a = np.empty_like(W), np.empty_like(M), np.empty_like(a)
    drawn = -1
    for step in range(first, last):
        rows, target, drawn = batch_of(step, batch, drawn, keys, epoch0, order, noise, y, hyper)
        Xk = X[rows]
        s, finite = zero, True
        at_W, at_M, at_a = W, M, a
        for stage in range(1 if ascent == PLAIN else 2):
            if stage == 1:
                shifted(up_W.ravel(), W.ravel(), s, G_W.ravel())
                shifted(up_M.ravel(), M.ravel(), s, G_M.ravel())
                shifted(up_a, a, s, G_a)
                at_W, at_M, at_a = up_W, up_M, up_a
            finite = finite and _gradient(Xk, target, at_W, at_M, at_a, loss, hyper, G_W, G_M, G_a)
            if stage == 0:
                w, g = G_W.ravel(), G_M.ravel()
                squared = dot(w, w, zero) + dot(g, g, zero) + dot(G_a, G_a, zero)
                s = ascent_length(ascent, squared, hyper)
        if not finite:
            return step
        descend(W.ravel(), keep, hyper[LR], G_W.ravel())
        descend(M.ravel(), keep, hyper[LR], G_M.ravel())
        descend(a, keep, hyper[LR], G_a)
        if hyper[MAX_NORM] > zero:
            _project(W, hyper[MAX_NORM], zero)
    return -1
