"""Is the network linear in each of its parameters alone, around θ?

If it is (linear and convolutional layers, ReLU, max-pooling, BatchNorm with fixed statistics, each
parameter used once), ∇²f has zero diagonal blocks there, so Tr ∇²L is the trace of the Gauss–Newton
part. The test looks at the function itself, not at the names of its layers. It takes the second
derivative of a random combination of outputs along a random direction in one parameter. With
probability one this vanishes only if that diagonal block of ∇²f vanishes for every output.

The test uses 64 random examples, or all if there are no more. Nonlinearity that shows on a fraction
q of the examples only (a smooth branch that few inputs take, an activation that is straight where
nearly all inputs fall) is missed with probability about (1 − q)^64.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ..randomness import generator
from .batches import drawn, joined
from .copying import copied_again
from .graph import only_once
from .problem import Problem, kernels

EXAMPLES = 64
TOLERANCE = 1e-10


def linear_in_each_parameter(problem: Problem, seed: int = 0) -> bool:
    """Return whether all diagonal blocks of ∇²f vanish on random examples, computed in float64.

    Smooth activations and normalisations bend f by far more than rounding does. ReLU kinks carry
    curvature that no derivative sees; it is not counted here nor in the Hessian. A model that does
    not run in float64, or has no second derivative, counts as not linear.
    """
    if problem.mode == "train":
        return False
    try:
        model = copied_again(problem.model).double()
        draw = generator(seed, "certificate")
        rows = drawn(problem.batches, EXAMPLES, seed, "examples of the certificate")
        with kernels():
            return all(_straight(model, problem, x, draw) for x, _ in joined(rows, None))
    except RuntimeError:
        return False


def _straight(model: nn.Module, problem: Problem, x: Tensor, draw: np.random.Generator) -> bool:
    params: dict[str, Tensor] = {n: p for n, p in model.named_parameters() if n in problem.params}

    def normal(like: Tensor) -> Tensor:
        return torch.as_tensor(draw.normal(size=tuple(like.shape))).to(like.device)

    outputs = model(x.double() if x.is_floating_point() else x)
    if not outputs.requires_grad:
        return True
    if only_once(outputs) is not None:
        return False
    size = float(outputs.detach().abs().max())
    mixed = (outputs * normal(outputs)).sum()
    gradients = torch.autograd.grad(
        mixed, list(params.values()), create_graph=True, allow_unused=True, materialize_grads=True
    )
    for p, gradient in zip(params.values(), gradients, strict=True):
        v = normal(p) * (p.detach().norm() / p.numel() ** 0.5 + 1e-3)
        first = (gradient * v).sum()
        if not first.requires_grad:
            continue
        (bent,) = torch.autograd.grad(
            first, p, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        second = float((bent * v).sum())
        if not abs(second) <= TOLERANCE * (abs(float(first.detach())) + size):
            return False
    return True
