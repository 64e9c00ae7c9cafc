"""Another point with the same function: the rescaling of Dinh et al.

Reference: Dinh et al., Sharp minima can generalize for deep nets, ICML 2017.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from numbers import Real

import torch
from torch import nn

from ..errors import UserError, unknown
from .chain import pairs


def rescale(model: nn.Module, alpha: float, layers: Sequence[str] | None = None) -> nn.Module:
    """Return a copy that computes the same function with other parameters.

    relu(αz) = α relu(z) for α > 0, so a layer's weight and bias can be multiplied by α and the next
    layer's weight divided by α. That is done to every two layers (linear or convolutional) of a
    Sequential between which only ReLU-like modules, pooling, dropout or reshaping stand, one pair
    after the other.

    Args:
        model: The network; it is left as it is.
        alpha: The factor, > 0.
        layers: Names of the layers to multiply, such as ["0"]; None for all that can be.
    """
    if isinstance(alpha, bool) or not isinstance(alpha, Real):
        raise UserError(f"alpha must be a number > 0, got {alpha!r}")
    if not 0 < alpha < math.inf:
        raise UserError(f"alpha must be > 0 and finite, got {alpha!r}")
    if not isinstance(model, nn.Module):
        raise UserError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    made = copy.deepcopy(model)
    found = {pair.name: pair for pair in pairs(made)}
    if not found:
        raise UserError(
            "nothing to rescale: no two Linear or convolutional layers of a Sequential have only "
            "ReLU, pooling, dropout or reshaping between them"
        )
    wanted = list(found) if layers is None else [layers] if isinstance(layers, str) else layers
    for name in wanted:
        if name not in found:
            raise unknown("layer to rescale", str(name), found)
    with torch.no_grad():
        for name in wanted:
            for p in found[name].first:
                p.mul_(alpha)
            found[name].second.div_(alpha)
    return made
