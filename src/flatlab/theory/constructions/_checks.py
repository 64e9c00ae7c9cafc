"""Checks of arguments that constructions share."""

from __future__ import annotations

import numpy as np

from ...data import Dataset
from ...errors import UserError
from ..bounds import is_xor


def require_xor(data: Dataset, what: str) -> None:
    """Raise unless x1, x2 are ±1 and y = x1·x2 on the training set."""
    if data.d < 2:
        raise UserError(f"{what} needs d >= 2, got d={data.d}")
    if not is_xor(data):
        raise UserError(f"{what} needs x1, x2 in {{-1, 1}} and y = x1*x2, unlike {data.name!r}")


def common_norm(data: Dataset, what: str) -> float:
    """Return ‖x‖, which must be the same for all training inputs."""
    norms = np.linalg.norm(data.x_train, axis=1)
    if np.ptp(norms) > 1e-9 * norms.max():
        raise UserError(
            f"{what} needs inputs of one norm, got norms from {norms.min():.6g} to "
            f"{norms.max():.6g}"
        )
    return float(norms.mean())
