"""Networks that memorise: one neuron for each training point (Theorems 4.1, 5.1; the lecture)."""

from __future__ import annotations

import numpy as np

from ...data import Dataset
from ...errors import UserError, listed, positive, truth, whole_number
from ...models import Deep, Params, TwoLayer
from ..geometry import Separation, require_extreme
from ..solution import Array, Solution
from .balancing import balanced

# Required relative accuracy of the activations at training points.
PRECISION = 1e-7


def memorising(
    data: Dataset,
    depth: int = 2,
    width: int | None = None,
    epsilon: float | Array | None = None,
) -> Solution:
    """The memorising solution of Theorem 4.1: as flat as any, and zero off the training set.

    Let w_i separate x_i from the other points, and x' = (x, 1). Neuron i of the first layer is
    σ(u_i (w_i·(x − x_i) + ε)/ε), which is u_i at x_i and 0 at the other points; the layers above
    are diag(1/r_i), the last sign(y_i)/r_i, with

        r_i = (‖x'_i‖/|y_i|)^{1/D},   u_i = |y_i| r_i^{D−1}.

    Then ‖∇f(x_i)‖² = D |y_i|^{2(D−1)/D} ‖x'_i‖^{2/D}, the floor of `bounds.bias_floor`.

    Args:
        data: The training inputs must be extreme points, its labels not zero.
        depth: Number D of weight layers.
        width: Neurons in each hidden layer, at least n; n unless given. The others are dead.
        epsilon: Width of the spikes. Unless given, half the margin min_j w_i·(x_i − x_j) of each
            point; on the cube half the smallest margin of the whole cube, 2/√d, so that f = 0 at
            every other point of the cube.
    """
    depth = whole_number("depth", depth, 2)
    width = whole_number("width", data.n if width is None else width, data.n)
    found = require_extreme(data.x_train)
    require_labels(data)
    widths = spike_widths(data, found, epsilon)
    size = np.sqrt(np.sum(data.x_train**2, 1) + 1)
    arch = TwoLayer(width=width) if depth == 2 else Deep(depth=depth, width=width)
    r = (size / np.abs(data.y_train)) ** (1 / depth)
    u = np.abs(data.y_train) * r ** (depth - 1)
    params = spikes(data, found, u, widths, width)
    for layer in range(2, depth):
        params[f"W{layer}"] = np.diag(padded(1 / r, width))
    params[f"W{depth}"] = padded(np.sign(data.y_train) / r, width)
    return Solution(arch, params, data)


def layer_norm_memorising(
    data: Dataset,
    ln_epsilon: float = 1e-3,
    width: int | None = None,
    delta: float | None = None,
    threshold: float = 0.5,
    zero_labels: bool = False,
) -> Solution:
    """The memorising solution of Theorem 5.1, with f = W2 h/max(‖h‖, ε).

    Neuron i is a spike of height u_i at x_i, its output weight r_i y_i. With q_i = ‖x'_i‖|y_i|:

        q_i > ε/2:      u_i = 2ε, r_i = 1, so ‖∇f(x_i)‖² = 1
        0 < q_i ≤ ε/2:  u_i = √(ε q_i), r_i = √(ε/q_i), so ‖∇f(x_i)‖² = 2q_i/ε
        y_i = 0:        no neuron, so ‖∇f(x_i)‖² = 0 (and x_i is not memorised)

    which is the floor of `bounds.layer_norm_floor`. The paper puts the threshold between the first
    two cases at ε, where the second costs up to 2 (erratum E10), and gives the third case a neuron
    (erratum E11).

    Args:
        data: The training inputs must be extreme points.
        ln_epsilon: ε of simplified LayerNorm.
        width: Neurons, at least n; n unless given.
        delta: Width of the spikes; half of each margin unless given.
        threshold: The q_i between the first two cases, as a share of ε.
        zero_labels: Whether labels may be zero; their points are then not memorised.
    """
    if not zero_labels:
        require_labels(data)
    width = whole_number("width", data.n if width is None else width, data.n)
    ln_epsilon = positive("ln_epsilon", ln_epsilon)
    found = require_extreme(data.x_train)
    widths = spike_widths(data, found, delta)
    y = data.y_train
    q = np.sqrt(np.sum(data.x_train**2, 1) + 1) * np.abs(y)
    large = q > threshold * ln_epsilon
    safe = np.where(q > 0, q, 1.0)
    u = np.where(large, 2 * ln_epsilon, np.sqrt(ln_epsilon * safe))
    r = np.where(large, 1.0, np.sqrt(ln_epsilon / safe))
    params = spikes(data, found, u, widths, width)
    dead = np.flatnonzero(y == 0)
    params["W1"][dead] = 0.0
    params["b1"][dead] = -1.0
    params["W2"] = padded(r * y, width)
    return Solution(TwoLayer(width=width, norm="layer", ln_epsilon=ln_epsilon), params, data)


def no_bias_memorising(data: Dataset) -> Solution:
    """A memorising network without bias, at the floor: for n ≤ d linearly independent inputs.

    For such inputs there are rows with w_i·x_j = 2δ_ij − 1, so neuron i fires at x_i alone and no
    point is on a kink. Balanced, ‖∇f(x_i)‖² = 2‖x_i‖|y_i|. So with fewer samples than Theorem 3.1
    asks for, a flattest minimum without bias need not generalise either.

    Args:
        data: At most d linearly independent training inputs, labels not zero.
    """
    require_labels(data)
    if np.linalg.matrix_rank(data.x_train) < data.n:
        raise UserError(
            f"no_bias_memorising needs linearly independent inputs, n <= d: got n={data.n}, "
            f"d={data.d}, rank {np.linalg.matrix_rank(data.x_train)}"
        )
    wanted = 2 * np.eye(data.n) - 1
    W1 = np.linalg.lstsq(data.x_train, wanted.T, rcond=None)[0].T
    params: Params = {"W1": W1, "W2": data.y_train.copy()}
    return balanced(Solution(TwoLayer(width=data.n, bias=False), params, data))


def lecture_memorising(data: Dataset, mended: bool = False) -> Solution:
    """The lecture's memorising network: w_j = x_j/‖x_j‖, b_j = −√d/2, a_j = 2y_j/√d; or mended.

    As printed it interpolates only if the inputs are nearly orthogonal, and is at the floor only
    for d ≈ 16.9: ‖∇f(x_i)‖² = 4(d+1)/d + d/4 against 2√(d+1) (errata W2 and W4).

    Mended, it keeps the directions x_j/‖x_j‖, raises the thresholds until neuron j fires at x_j
    alone, and balances the layers: with ε_j half of ‖x_j‖ − max_{i≠j} x_j·x_i/‖x_j‖, on the cube
    at most 1/√d, and u_j² = |y_j|‖x'_j‖, neuron j is u_j σ(x_j·x/‖x_j‖ − ‖x_j‖ + ε_j)/ε_j and
    a_j = y_j/u_j. Then ‖∇f(x_i)‖² = 2‖x'_i‖|y_i|, the floor, and f is zero at all other points of
    the cube. On a sphere this is always possible.

    Args:
        data: Labels not zero, no input zero; mended, x_j·x_i < ‖x_j‖² for all i ≠ j.
        mended: Whether to mend it.
    """
    require_labels(data)
    mended = truth("mended", mended)
    norms = np.linalg.norm(data.x_train, axis=1, keepdims=True)
    if norms.min() == 0:
        raise UserError("a training input is zero and has no direction: leave it out")
    units, size = data.x_train / norms, norms[:, 0]
    if not mended:
        params: Params = {
            "W1": units,
            "b1": np.full(data.n, -np.sqrt(data.d) / 2),
            "W2": 2 * data.y_train / np.sqrt(data.d),
        }
        return Solution(TwoLayer(width=data.n), params, data)
    overlaps = units @ data.x_train.T
    np.fill_diagonal(overlaps, -np.inf)
    margins = size - overlaps.max(1)
    short = np.flatnonzero(margins <= 1e-9 * size)
    if len(short):
        raise UserError(
            f"the mended lecture network needs x_j·x_i < ‖x_j‖² for all other points, which point "
            f"{short[0]} (from 0) violates: use memorising, which searches for directions"
        )
    u = np.sqrt(np.abs(data.y_train) * np.sqrt(size**2 + 1))
    found = Separation(units, margins)
    params = spikes(data, found, u, spike_widths(data, found, None), data.n)
    params["W2"] = data.y_train / u
    return Solution(TwoLayer(width=data.n), params, data)


def spikes(data: Dataset, found: Separation, heights: Array, widths: Array, width: int) -> Params:
    """Return a first layer whose neuron i is heights_i at x_i and zero at the other points."""
    steep = heights / widths
    at = np.sum(found.directions * data.x_train, 1)
    params: Params = {
        "W1": np.zeros((width, data.d)),
        "b1": padded(steep * (widths - at), width, -1.0),
    }
    params["W1"][: data.n] = steep[:, None] * found.directions
    return params


def padded(values: Array, width: int, filler: float = 0.0) -> Array:
    """Return the values followed by a filler up to the width.

    A dead neuron has the bias −1 instead of the printed 0, so no point is on its kink.
    """
    return np.concatenate([values, np.full(width - len(values), filler)])


def spike_widths(data: Dataset, found: Separation, epsilon: float | Array | None) -> Array:
    """Return the width of each spike: the given one, if it is valid, or the default."""
    chosen = epsilon is not None
    if epsilon is None:
        on_cube = bool(np.all(np.abs(data.x_train) == 1))
        finest = np.minimum(found.margins, 2 / np.sqrt(data.d)) if on_cube else found.margins
        epsilon = np.where(np.isinf(finest), 2.0, finest) / 2
    elif not isinstance(epsilon, np.ndarray):
        epsilon = positive("epsilon", epsilon)
    widths = np.broadcast_to(np.asarray(epsilon, np.float64), found.margins.shape)
    if np.any(widths >= found.margins):
        raise UserError(
            f"epsilon must be < {found.margins.min():.6g}, the smallest margin between training "
            f"points, or a spike reaches its neighbour; got {widths.max():g}"
        )
    size = float(np.linalg.norm(data.x_train, axis=1).max())
    least = np.finfo(np.float64).eps * max(size, 1.0) / PRECISION
    if widths.min() < least:
        given = f"got {widths.min():.3g}" if chosen else (
            f"point {int(widths.argmin())} (from 0) is only {found.margins.min():.3g} away from "
            "the others' hull"
        )  # fmt: skip
        raise UserError(
            f"epsilon must be >= {least:.2g} for inputs of size {size:.3g}: float64 cannot tell a "
            f"narrower spike from its surroundings; {given}"
        )
    return widths


def require_labels(data: Dataset) -> None:
    """Raise if a label is zero: then no memorising solution is flattest (erratum E11)."""
    zeros = np.flatnonzero(data.y_train == 0)
    if len(zeros):
        one = len(zeros) == 1
        raise UserError(
            f"{'label' if one else 'labels'} {listed(zeros, most=5)} (from 0) "
            f"{'is' if one else 'are'} zero: a network that memorises needs a neuron there and is "
            "then not flattest; use labels that are not zero"
        )
