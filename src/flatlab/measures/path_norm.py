"""The path norm of a chain of layers."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import UserError
from ..problem import Problem
from ..specs import spec
from .chain import HOMOGENEOUS, LINEAR, homogeneous, matrices, plain_sequential, steps, written_out
from .contract import About, Measured
from .effort import Effort


def _rows(weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the norm of every unit's weights and bias."""
    squared = weight.double().flatten(1).square().sum(1)
    return (squared if bias is None else squared + bias.double().square()).sqrt()


def _along(model: nn.Module, x: Tensor) -> float:
    """Return the path norm of a Sequential: norms in the first layer, absolute values above."""
    v: Tensor | None = None
    for _, module in steps(model):  # type: ignore[arg-type]
        if v is None and type(module) in LINEAR:
            norms = _rows(module.weight, module.bias)  # type: ignore[arg-type]
            x = module(x)
            channels = (
                norms if isinstance(module, nn.Linear) else norms.view(-1, *[1] * (x.ndim - 2))
            )
            v = channels.expand_as(x).clone()  # a ReLU may work in place
        elif v is None:
            x = module(x)
        else:
            sizes = {name: p.double().abs() for name, p in module.named_parameters()}
            v = functional_call(module, sizes, (v,))
    assert v is not None
    return float(v.sum())


def _path_norm(model: nn.Module, x: Tensor) -> float:
    arch = written_out(model)
    if arch is not None and homogeneous(arch):
        first, *others = (W.double() for W in matrices(model))
        v = _rows(first, dict(model.named_parameters()).get("b1"))
        for W in others:
            v = W.abs() @ v
        return float(v.sum())
    kinds = {type(m) for _, m in steps(model)} if plain_sequential(model) else set()  # type: ignore[arg-type]
    transposed = any(kind.__name__.startswith("ConvTranspose") for kind in kinds)
    if not kinds & set(LINEAR) or transposed or kinds - set(LINEAR) - set(HOMOGENEOUS):
        raise UserError(
            "path_norm needs a Sequential of Linear or convolutional layers with only ReLU, "
            "pooling, dropout or reshaping between them"
        )
    return _along(model, x)


@spec
class PathNorm:
    """Σ over paths of ‖w_j‖ |w²_kj| ⋯ |w^D_o·|: norms in the first layer, absolute values above.

    For two layers it is Σ_j |a_j| ‖w_j‖, with the bias as one more weight of its unit. It bounds
    the sum of the outputs' Lipschitz constants. A bias in a later layer starts paths of its own;
    max-pooling passes on the largest; at the border of an image all weights of a filter count.
    """

    about: ClassVar[About] = About(
        "‖θ‖_P",
        "the path norm: products of weights along paths, summed",
        "Σ_j |a_j| ‖w_j‖ for two layers; 1ᵀ|W_D| ⋯ |W_2| (‖w_j‖)_j in general",
        "one pass",
        "of the whole network, whichever parameters are selected; grows fast with depth. Other "
        "authors take squares or absolutes in the first layer too",
        exact="yes",
        relu="invariant",
        batchnorm="does not apply",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        with torch.no_grad():
            value = _path_norm(problem.model, problem.batches[0][0][:1])
        effort.spend()
        return Measured(value, 0.0, True, "exact")
