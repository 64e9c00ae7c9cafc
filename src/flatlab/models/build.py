"""From a spec and stored arrays to a torch module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError
from .chains import Chain, TwoLayer
from .contract import Architecture, Examples, Params, shapes_of

if TYPE_CHECKING:
    from torch import nn


def build(arch: Chain, params: Params, x_train: ArrayLike) -> nn.Module:
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


def network(
    arch: Architecture, data: Examples, seed: int, params: Params, buffers: Params | None = None
) -> nn.Module:
    """Return the network of a run with stored parameters and buffers, in their dtype."""
    import torch

    net = arch.module(data, seed)
    stored = {**params, **(buffers or {})}
    expected = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    if shapes_of(stored) != expected:
        raise UserError(
            f"parameters do not fit {arch.describe()}: expected {expected}, got {shapes_of(stored)}"
        )
    net.to(dtype=getattr(torch, str(next(iter(params.values())).dtype)))
    net.load_state_dict({name: torch.from_numpy(np.array(v)) for name, v in stored.items()})
    return net
