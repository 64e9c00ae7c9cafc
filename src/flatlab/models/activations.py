"""The nonlinearities in numpy, for what is computed from weights without torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .chains import Chain

Array = NDArray[np.float64]


def activated(arch: Chain, h: Array) -> Array:
    """Return σ(h) of an architecture."""
    kind = arch.activation
    if kind == "softplus":
        return np.logaddexp(h, 0.0)
    if kind == "tanh":
        return np.tanh(h)
    return h if kind == "identity" else np.maximum(h, 0.0)
