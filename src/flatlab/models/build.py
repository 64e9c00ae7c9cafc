"""From a spec and parameters to a torch module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError
from .spec import Architecture, Params, TwoLayer

if TYPE_CHECKING:
    from torch import nn


def build(arch: Architecture, params: Params, x_train: ArrayLike) -> nn.Module:
    """Return the network with these parameters, in their dtype.

    Args:
        arch: The architecture.
        params: Name → array, as `arch.shapes` says.
        x_train: Training inputs, (n, d); BatchNorm of either kind takes its statistics from them.
    """
    import torch

    from .deep import DeepNet
    from .two_layer import TwoLayerNet

    x = np.asarray(x_train)
    expected = arch.shapes(x.shape[1])
    given = {name: np.shape(value) for name, value in params.items()}
    if given != expected:
        raise UserError(f"parameters do not fit {arch}: expected {expected}, got {given}")
    if isinstance(arch, TwoLayer):
        dtype = next(iter(params.values())).dtype
        return TwoLayerNet(arch, params, torch.tensor(x.astype(dtype)))
    return DeepNet(arch, params)
