"""Two-layer networks, one example per step: the rank-one algebra in blocks.

With h = W x, the gradient of the output f(x) is ∂f/∂a (a vector) and the outer product
∂f/∂W = c xᵀ, c = ∂f/∂h. So the ascent moves h by s c‖x‖² and the perturbed pass needs no second
product with W. And k consecutive examples share one product H = W X_kᵀ: an earlier update
W ← W − κ c_i x_iᵀ lowers a later column j by κ c_i ⟨x_i, x_j⟩, with the product from the k × k Gram
matrix. Updates in the same tile of columns are subtracted one by one, updates of earlier tiles in
one product. The k rank-one updates of W are applied together at the end. The algorithm is the same,
only reordered.

Weight decay and projection multiply the whole of W by a scalar, which is kept separately within a
block: W = scale · V. A block ends early if V and W differ too much in size for the dtype. A bias
with separate steps or a separate norm is kept out of W and added to h. Input noise is added before
the products, since the algebra holds for any inputs.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import njit

from .blas import add_product
from .philox import normals, signs, visits
from .room import room
from .scalar import (
    BIAS_DECAY,
    BIAS_LR,
    DECAY,
    EACH,
    FAST,
    HELD,
    INPUT_NOISE,
    LAYER,
    LN_EPSILON,
    LR,
    MAX_NORM,
    NOISE,
    NONE,
    ONE,
    PLAIN,
    RELU,
    SOFTPLUS,
    ZERO,
    activate,
    ascent_length,
    descend,
    dot,
    slope,
)
from .softplus import softplus

# Size of a tile: rows of H that are corrected together for the updates of earlier tiles.
TILE = 10


def block_size(inputs):
    """Return how many examples share one pass over a first layer with this number of inputs.

    More examples read and write the weights less often; fewer need fewer Gram corrections, whose
    cost does not depend on the number of inputs. Timed at widths of 500 to 8,000 and up to 1,000
    inputs.
    """
    return 20 if inputs < 200 else 40


@njit(cache=True, fastmath=FAST, inline="always")
def _output_gradient(activation, norm, h, a, grad_a, grad_h, slopes, hyper):
    """Return f, ‖∂f/∂a‖², ‖∂f/∂h‖² and fill both gradients, for one example with W x = h.

    With u = σ(h): plain f = a·u; LayerNorm f = a·u/N, N = max(‖u‖, ε), whose gradient in u is
    a/N − f u/N² if ‖u‖ > ε and a/ε otherwise.
    """
    zero, one = hyper[ZERO], hyper[ONE]
    activate(activation, h, grad_a, slopes, zero, one)
    f, inverse, pull = dot(a, grad_a, zero), one, zero
    if norm == LAYER:
        size = np.sqrt(dot(grad_a, grad_a, zero))
        outside = size > hyper[LN_EPSILON]
        inverse = one / (size if outside else hyper[LN_EPSILON])
        f *= inverse
        pull = f * inverse if outside else zero
    for t in range(h.shape[0]):
        grad_a[t] *= inverse
        grad_h[t] = slopes[t] * (a[t] * inverse - pull * grad_a[t])
    return f, dot(grad_a, grad_a, zero), dot(grad_h, grad_h, zero)


@njit(cache=True, fastmath=FAST, inline="always")
def _step(h, a, squared_x, y, activation, norm, loss, ascent, grad_a, c, work, hyper):
    """Step `a` for one example, filling c = ∂f/∂h; return (lr ℓ', f) at the descent point."""
    s, gradient = hyper[ZERO], hyper[ZERO]
    f = s
    grad_a[:] = s
    c[:] = s
    for stage in range(1 if ascent == PLAIN else 2):
        for t in range(a.shape[0]):
            work[0, t] = a[t] + s * grad_a[t]
            work[1, t] = h[t] + s * squared_x * c[t]
        f, norm_a, norm_h = _output_gradient(
            activation, norm, work[1], work[0], grad_a, c, work[2], hyper
        )
        gradient = slope(loss, f, y, hyper)
        if stage == 0:
            squared = gradient * gradient * (norm_a + squared_x * norm_h)
            s = ascent_length(ascent, squared, hyper) * gradient
    descend(a, hyper[ONE] - hyper[LR] * hyper[DECAY], hyper[LR] * gradient, grad_a)
    return hyper[LR] * gradient, f


@njit(cache=True, fastmath=FAST, inline="always")
def _relu_step(h, a, before, squared_x, y, loss, ascent, grad_a, c, hyper):
    """Do the same as `_step` for plain ReLU, in one pass over the neurons for each stage.

    `before` is (keep, step, grad_a) of the step before; its update of `a` is still to do, and is
    part of the first pass.
    """
    zero = hyper[ZERO]
    f, norm_a, norm_h = zero, zero, zero
    keep, step, grad_before = before
    for t in range(a.shape[0]):
        a_t = keep * a[t] - step * grad_before[t]
        off = h[t] <= zero  # NaN is not off: a diverged weight shows in f
        u = zero if off else h[t]
        v = zero if off else a_t
        a[t] = a_t
        if ascent == PLAIN:
            grad_a[t] = u
            c[t] = v
        f += a_t * u
        norm_a += u * u
        norm_h += v * v
    gradient = slope(loss, f, y, hyper)
    if ascent != PLAIN:
        squared = gradient * gradient * (norm_a + squared_x * norm_h)
        s = ascent_length(ascent, squared, hyper) * gradient
        s_h = s * squared_x
        f = zero
        for t in range(a.shape[0]):  # a neuron that is off has no gradient and stays off
            up_h = zero if h[t] <= zero else h[t] + s_h * a[t]
            up_a = a[t] + s * h[t]
            off = up_h <= zero
            u = zero if off else up_h
            c[t] = zero if off else up_a
            grad_a[t] = u
            f += up_a * u
        gradient = slope(loss, f, y, hyper)
    return hyper[LR] * gradient, f


@njit(cache=True, fastmath=FAST, inline="always")
def _softplus_step(h, a, before, squared_x, y, loss, ascent, grad_a, c, hyper):
    """Do the same as `_step` for plain softplus, like `_relu_step` for ReLU."""
    zero = hyper[ZERO]
    f, norm_a, norm_h = zero, zero, zero
    keep, step, grad_before = before
    for t in range(a.shape[0]):
        a_t = keep * a[t] - step * grad_before[t]
        u, rate = softplus(h[t])
        v = a_t * rate
        a[t], grad_a[t], c[t] = a_t, u, v
        f += a_t * u
        norm_a += u * u
        norm_h += v * v
    gradient = slope(loss, f, y, hyper)
    if ascent != PLAIN:
        squared = gradient * gradient * (norm_a + squared_x * norm_h)
        s = ascent_length(ascent, squared, hyper) * gradient
        s_h = s * squared_x
        f = zero
        for t in range(a.shape[0]):
            up_a = a[t] + s * grad_a[t]
            u, rate = softplus(h[t] + s_h * c[t])
            grad_a[t], c[t] = u, up_a * rate
            f += up_a * u
        gradient = slope(loss, f, y, hyper)
    return hyper[LR] * gradient, f


@njit(cache=True, fastmath=FAST, inline="always")
def _corrected_tile(H, C, gram, kappas, start, end, tile, factors, one):
    """Subtract all updates before a tile from its rows of H, in one product."""
    rows = end - start
    for i in range(start):
        for j in range(rows):
            tile[i * rows + j] = kappas[i] * gram[start + j, i]
    factors[0], factors[1] = -one, one
    weights = tile[: start * rows].reshape((start, rows))
    add_product(H[start:end], weights, C[:start], factors)


@njit(cache=True, fastmath=FAST, inline="always")
def _corrected(h, C, gram_row, kappas, start, end, scale):
    """Subtract updates from one row of H: h ← scale (h − Σ_i κ_i K_ij c_i) over i in its tile."""
    m = h.shape[0]
    i = start
    while i + 4 <= end:
        k0, k1 = kappas[i] * gram_row[i], kappas[i + 1] * gram_row[i + 1]
        k2, k3 = kappas[i + 2] * gram_row[i + 2], kappas[i + 3] * gram_row[i + 3]
        c0, c1, c2, c3 = C[i], C[i + 1], C[i + 2], C[i + 3]
        for t in range(m):
            h[t] -= k0 * c0[t] + k1 * c1[t] + k2 * c2[t] + k3 * c3[t]
        i += 4
    while i < end:
        k0, c0 = kappas[i] * gram_row[i], C[i]
        for t in range(m):
            h[t] -= k0 * c0[t]
        i += 1
    if scale != 1:
        for t in range(m):
            h[t] *= scale


def kernel(activation, norm, loss, ascent, apart=False, noisy=False):
    """Return the kernel for four codes of `scalar` (norm: none or layer).

    Most epochs go to plain networks with ReLU and softplus, so these have a kernel for each loss
    and ascent, compiled with the codes as constants; one kernel serves all other networks. `apart`
    says that the bias has separate steps or a separate norm, `noisy` that inputs have noise.
    """
    return _kernel(*specialised(activation, norm, loss, ascent), apart, noisy)


def specialised(activation, norm, loss, ascent):
    """Return the codes that a kernel is compiled for; (−1, 0, 0) for the general kernel."""
    hot = norm == NONE and activation in (RELU, SOFTPLUS)
    return (activation, loss, ascent) if hot else (-1, 0, 0)


@functools.cache
def _kernel(hot, loss, ascent, apart, noisy):
    def train(W, a, X, y, d, first, last, epoch0, size, keys, codes, hyper):
        """Run blocks first..last−1 of a phase in place; return the block that diverged, or −1.

        Args:
            W: First layer, (d', m), its bias (if any) as the last row.
            a: Second layer, (m,).
            X: Inputs, (n, d'), with a column of ones if there is a bias.
            y: Labels, (n,).
            d: Number of inputs without the bias; the bias is row d of W.
            first: First block, counted from the start of the phase.
            last: One past the last block.
            epoch0: Epochs before this phase; epochs index the random streams.
            size: Examples in a block.
            keys: Philox keys of the random streams (`compiled.USES`) and the order's code, (5, 2).
            codes: Activation, norm, loss, ascent and norm rule, as `scalar` numbers them.
            hyper: Hyper-parameters in the dtype of W, at the positions named in `scalar`.
        """
        n, width = X.shape[0], W.shape[1]
        zero, one, two = hyper[ZERO], hyper[ONE], hyper[ONE] + hyper[ONE]
        hundred = W.dtype.type(100)
        keep, limit, rule = one - hyper[LR] * hyper[DECAY], hyper[MAX_NORM], codes[4]
        blocks = (n + size - 1) // size
        order, noise = np.empty(n, np.int64), np.zeros(n, np.int64)
        H, C, work = room(size, width, W), room(size, width, W), room(3, width, W)
        grad_a = room(1, width, W)[0]
        kappas, tile = np.empty(size, W.dtype), np.empty(size * TILE, W.dtype)
        factors = np.empty(2, W.dtype)
        before = (one, zero, room(1, width, W)[0])
        drawn = -1
        if noisy:
            shifts = np.empty((n, d))
        if apart:
            b, b_step = W[d].copy(), hyper[BIAS_LR] / hyper[LR]
            b_keep = one - hyper[BIAS_LR] * hyper[BIAS_DECAY]
            W[d] = zero
        for block in range(first, last):
            epoch = block // blocks
            if epoch != drawn:
                visits(keys, epoch0 + epoch, order)
                if hyper[NOISE] > zero:
                    signs(keys[1], epoch0 + epoch, noise)
                if noisy:
                    normals(keys[2], epoch0 + epoch, shifts)
                drawn = epoch
            start = (block - epoch * blocks) * size
            end = min(start + size, n)
            while start < end:
                k = end - start
                Xk = X[order[start:end]]
                if noisy:
                    for j in range(k):
                        for i in range(d):
                            Xk[j, i] += hyper[INPUT_NOISE] * W.dtype.type(shifts[start + j, i])
                if apart:
                    Xk[:, d] = zero
                np.dot(Xk, W, H[:k])
                gram = np.dot(Xk, Xk.T)
                scale, squared_norm = one, zero
                if limit > zero:
                    flat = W.ravel()
                    squared_norm = dot(flat, flat, zero)
                least = squared_norm / hundred
                for j in range(k):
                    h, c, squared_x = H[j], C[j], gram[j, j]
                    into = j % TILE
                    if j > 0 and into == 0:
                        till = min(j + TILE, k)
                        _corrected_tile(H, C, gram, kappas, j, till, tile, factors, one)
                    _corrected(h, C, gram[j], kappas, j - into, j, scale)
                    if apart:
                        squared_x += one
                        for t in range(width):
                            h[t] += b[t]
                    target = y[order[start + j]] + hyper[NOISE] * W.dtype.type(noise[start + j])
                    if hot == RELU:
                        step, f = _relu_step(
                            h, a, before, squared_x, target, loss, ascent, grad_a, c, hyper
                        )
                    elif hot == SOFTPLUS:
                        step, f = _softplus_step(
                            h, a, before, squared_x, target, loss, ascent, grad_a, c, hyper
                        )
                    else:
                        step, f = _step(
                            h, a, squared_x, target, codes[0], codes[1], codes[2], codes[3],
                            grad_a, c, work, hyper,
                        )  # fmt: skip
                    if hot >= 0:
                        before, grad_a = (keep, step, grad_a), before[2]
                    if not np.isfinite(f):
                        return block
                    kappa = step / (keep * scale)
                    kappas[j] = kappa
                    if limit > zero:
                        # ‖V − κ c xᵀ‖² = ‖V‖² − 2κ c·Vx + κ²‖c‖²‖x‖², and Vx = (h − b)/scale.
                        growth = kappa * gram[j, j] * dot(c, c, zero)
                        along = dot(c, h, zero)
                        if apart:
                            along -= dot(c, b, zero)
                        squared_norm += kappa * (growth - two * along / scale)
                    scale *= keep
                    if limit > zero and scale * scale * squared_norm > limit * limit:
                        scale = limit / np.sqrt(squared_norm)
                    if rule == HELD and squared_norm > zero:
                        scale = limit / np.sqrt(squared_norm)
                    if apart:
                        descend(b, b_keep, b_step * step, c)
                        if rule == EACH:
                            squared_b = dot(b, b, zero)
                            if squared_b > limit * limit:
                                b *= limit / np.sqrt(squared_b)
                    if scale * hundred < one or squared_norm < least:
                        k = j + 1  # V and W differ too much for the dtype: end the block here
                        break
                for j in range(k):
                    x = Xk[j]
                    for i in range(x.shape[0]):
                        x[i] *= kappas[j]
                factors[0], factors[1] = -scale, scale
                add_product(W, Xk[:k], C[:k], factors)
                start += k
        descend(a, before[0], before[1], before[2])
        if apart:
            W[d] = b
        return -1

    # The name gives each kernel its own file in numba's cache.
    train.__qualname__ = f"train_{hot}_{loss}_{ascent}_{apart}_{noisy}".replace("-", "_")
    return njit(cache=True, fastmath=FAST, error_model="numpy")(train)
