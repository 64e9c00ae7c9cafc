"""Evaluation of given parameters: losses, errors and the exact Hessian trace."""

from __future__ import annotations

import numpy as np

from ..data import Dataset
from ..losses import Loss
from ..models import Chain, Params
from ..models.chains import NORM_EPSILON
from . import softplus
from . import trace as formulas
from .layout import Array, Weights, inputs, pack, shares_gamma

_ROWS = 512  # test rows at a time: the hidden layer stays in cache


def outputs_and_curvature(arch: Chain, params: Params, x: Array) -> formulas.Values:
    """Return f, ‖∇f‖² and Tr ∇²f at the training inputs, in float64."""
    W, M, a, gamma, beta = pack(arch, params, np.float64)
    X = inputs(arch, x, np.float64)
    if arch.stacked:
        return formulas.deep(X, W, M, a)
    if arch.norm == "layer":
        return formulas.layer_norm(X, W, a, arch.activation, arch.ln_epsilon)
    if arch.norm == "batch":
        return formulas.batch_norm(X, W, a, gamma, arch.activation, shares_gamma(arch))
    if arch.norm is not None:
        layer = arch.norm == "standard_layer"
        formula = formulas.standard_layer_norm if layer else formulas.standard_batch_norm
        return formula(X, W, a, gamma, beta, arch.activation, NORM_EPSILON)
    return formulas.plain(X, W, a, arch.activation)


def predict(arch: Chain, params: Params, x_train: Array, x: Array) -> Array:
    """Return the outputs at x, in the dtype of the parameters."""
    dtype = params["W1"].dtype
    weights = pack(arch, params, dtype)
    standard = str(arch.norm).startswith("standard")
    shift = weights.a @ weights.beta if standard else 0
    if arch.norm == "standard_batch":
        u = _hidden(arch, weights, inputs(arch, x_train, dtype))
        weights = weights._replace(a=weights.a * weights.gamma / np.sqrt(u.var(0) + NORM_EPSILON))
        shift = shift - u.mean(0) @ weights.a
    if arch.norm == "batch":
        u = _hidden(arch, weights, inputs(arch, x_train, dtype))
        mean_square = (u**2).mean(0)
        alive = mean_square > 0
        rms = np.sqrt(np.where(alive, mean_square, 1))
        weights = weights._replace(a=np.where(alive, weights.a * weights.gamma / rms, 0))
    X = inputs(arch, x, dtype)
    f = np.empty(len(X), dtype)
    for start in range(0, len(X), _ROWS):
        part = slice(start, start + _ROWS)
        u = _hidden(arch, weights, X[part])
        f[part] = u @ weights.a
        if arch.norm == "layer":
            f[part] /= np.maximum(np.linalg.norm(u, axis=1), arch.ln_epsilon)
        elif arch.norm == "standard_layer":
            u -= u.mean(1, keepdims=True)
            f[part] = u @ (weights.a * weights.gamma) / np.sqrt((u**2).mean(1) + NORM_EPSILON)
    return f + shift if standard else f


def evaluate(arch: Chain, params: Params, loss: Loss, data: Dataset) -> dict[str, float]:
    """Return losses, errors and the trace.

    `trace` is Tr ∇²L; `trace_ggn` is its Gauss–Newton part (1/n) Σ ℓ''‖∇f‖², which the theory's
    lower bounds are about. The two agree at interpolation and wherever Tr ∇²f = 0. An error is the
    zero-one error Pr(y f ≤ 0), so f = 0 counts as an error. Errors are left out if labels are not
    ±1, and all test values if there is no test set.
    """
    f, squared, second = outputs_and_curvature(arch, params, data.x_train)
    value, first, curve = loss.values(f, data.y_train)
    row = {
        "train_loss": float(value.mean()),
        **_error("train_error", f, data.y_train),
        "trace": float((curve * squared + first * second).mean()),
        "trace_ggn": float((curve * squared).mean()),
    }
    if len(data.x_test):
        f_test = predict(arch, params, data.x_train, data.x_test).astype(np.float64)
        row["test_loss"] = float(loss.values(f_test, data.y_test)[0].mean())
        row |= _error("test_error", f_test, data.y_test)
    return row


def _error(name: str, f: Array, y: Array) -> dict[str, float]:
    """Return the zero-one error for labels ±1, and nothing for other labels."""
    return {name: float((y * f <= 0).mean())} if np.all(np.abs(y) == 1) else {}


def _hidden(arch: Chain, weights: Weights, X: Array) -> Array:
    h = X @ weights.W
    if arch.activation == "softplus":
        softplus.replaced(h.ravel())
        return h
    if arch.activation != "relu":
        u: Array = formulas.derivatives(arch.activation, h)[0]
        return u
    np.maximum(h, 0, out=h)
    for middle in weights.M:
        h = np.maximum(h @ middle.T, 0)
    return h
