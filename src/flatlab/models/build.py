"""From a spec and stored arrays to a torch module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError, shown
from .chains import Chain
from .contract import Architecture, Examples, Params, shapes_of

if TYPE_CHECKING:
    from torch import nn


def build(arch: Chain, params: Params, x_train: ArrayLike) -> nn.Module:
    """Return the network with these parameters, in their dtype.

    BatchNorm of either kind takes its statistics from the training inputs, of shape (n, d).
    """
    import torch

    from .chain_net import ChainNet

    if not isinstance(arch, Chain):
        raise UserError(f"arch must be a TwoLayer or Deep, got {shown(arch)}")
    if not isinstance(params, Mapping) or not all(map(_is_array, params.values())):
        raise UserError(f"params must be arrays by name, as run.params has, got {shown(params)}")
    x = np.asarray(x_train)
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise UserError(
            f"x_train must be numbers of shape (n, d), got {x.dtype} of shape {x.shape}"
        )
    _require_shapes(arch, params, arch.shapes(x.shape[1]))
    inputs = None if arch.stacked else torch.tensor(x.astype(params["W1"].dtype))
    return ChainNet(arch, params, inputs)


def network(
    arch: Architecture, data: Examples, seed: int, params: Params, buffers: Params | None = None
) -> nn.Module:
    """Return the network of a run with stored parameters and buffers, in their dtype."""
    import torch

    net = arch.module(data, seed)
    stored = {**params, **(buffers or {})}
    expected = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    _require_shapes(arch, stored, expected)
    net.to(dtype=getattr(torch, str(next(iter(params.values())).dtype)))
    net.load_state_dict({name: torch.from_numpy(np.array(v)) for name, v in stored.items()})
    return net


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _require_shapes(
    arch: Architecture, params: Params, expected: dict[str, tuple[int, ...]]
) -> None:
    given = shapes_of(params)
    other = [name for name in expected | given if expected.get(name) != given.get(name)]
    if other:
        said = [f"{n} is {given.get(n, 'missing')}, not {expected.get(n, 'absent')}" for n in other]
        more = f"; and {len(said) - 3} more" if len(said) > 3 else ""
        raise UserError(f"parameters do not fit {arch.describe()}: {'; '.join(said[:3])}{more}")
