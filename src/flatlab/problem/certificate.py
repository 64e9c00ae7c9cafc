"""Is the network linear in each of its parameters alone, around θ?

If it is (linear and convolutional layers, ReLU, max-pooling, BatchNorm with fixed statistics, each
parameter used once), ∇²f has zero diagonal blocks there, so Tr ∇²L is the trace of the Gauss–Newton
part. Every term of the second derivative then vanishes by itself, so the sum must be zero to the
last bit: a bend of 10⁻¹⁴ decides the trace where the loss is straight. The test looks at the
function itself, not at the names of its layers. It takes the second derivative of a random
combination of outputs along a random direction in one parameter, in arithmetic that rounds at
random, so that no bend is rounded off. With probability one this vanishes only if that diagonal
block of ∇²f vanishes for every output.

The test uses 64 random examples, or all if there are no more. Nonlinearity that shows on a fraction
q of the examples only (a smooth branch that few inputs take, an activation that is straight where
nearly all inputs fall) is missed with probability about (1 − q)^64.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ..randomness import generator
from .batches import drawn
from .copying import copied_again
from .disturbing import Disturbed
from .graph import only_once
from .problem import Problem, kernels

EXAMPLES = 64


def linear_in_each_parameter(problem: Problem, seed: int = 0) -> bool:
    """Return whether all diagonal blocks of ∇²f vanish on random examples, computed in float64.

    ReLU kinks carry curvature that no derivative sees; it is not counted here nor in the Hessian. A
    model that does not run in float64, or has no second derivative, counts as not linear.
    """
    if problem.mode == "train":
        return False
    try:
        model = copied_again(problem.model).double()
        draw = generator(seed, "certificate")
        rows = drawn(problem.batches, EXAMPLES, seed, "examples of the certificate")
        with kernels(), Disturbed(seed):
            return all(_straight(model, problem, x, draw) for x, _ in rows)
    except RuntimeError:
        return False


def _straight(model: nn.Module, problem: Problem, x: Tensor, draw: np.random.Generator) -> bool:

    def normal(like: Tensor) -> Tensor:
        return torch.as_tensor(draw.normal(size=tuple(like.shape))).to(like.device)

    outputs = model(x.double() if x.is_floating_point() else x)
    if not outputs.requires_grad:
        return True
    if only_once(outputs) is not None:
        return False
    mixed = (outputs * normal(outputs)).sum()
    inputs = [p for name, p in model.named_parameters() if name in problem.params]
    gradients = torch.autograd.grad(mixed, inputs, create_graph=True, materialize_grads=True)
    for p, gradient in zip(inputs, gradients, strict=True):
        v = normal(p)
        first = (gradient * v).sum()
        if not first.requires_grad:
            continue
        (bent,) = torch.autograd.grad(first, p, retain_graph=True, materialize_grads=True)
        if bool((bent != 0).any()):  # NaN too
            return False
    return True
