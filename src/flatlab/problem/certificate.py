"""Is the network linear in each of its parameters alone, around θ?

If it is (linear and convolutional layers, ReLU, max-pooling, BatchNorm with fixed statistics, each
parameter used once), ∇²f has zero diagonal blocks there, so Tr ∇²L is the trace of the Gauss–Newton
part. Every term of the second derivative then vanishes by itself, so the sum must be zero to the
last bit: a bend of 10⁻¹⁴ decides the trace where the loss is straight. The test looks at the
function itself, not at the names of its layers. It takes the second derivative of a random
combination of outputs along a random direction in one parameter, in arithmetic that rounds at
random, so that no bend is rounded off. With probability one this vanishes only if that diagonal
block of ∇²f vanishes for every output.

Arithmetic that rounds at random is slow, so it is used for 64 random examples. All examples are
then tested in plain float64: a smooth branch may be taken by few inputs, and an activation may be
straight where nearly all inputs fall.
"""

from __future__ import annotations

from collections.abc import Callable

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


def linear_in_each_parameter(
    problem: Problem, seed: int = 0, fits: Callable[[float], bool] = lambda done: True
) -> bool:
    """Return whether all diagonal blocks of ∇²f vanish on every example, computed in float64.

    After each batch it asks whether to go on, `fits(share done)`; False if not.

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
            if not all(_straight(model, problem, x, draw) for x, _ in rows):
                return False
        done = min(EXAMPLES, problem.n)
        for x, _ in problem.batches if problem.n > EXAMPLES else ():
            if not fits(done / (problem.n + EXAMPLES)):
                return False
            with kernels():
                if not _straight(model, problem, x, draw):
                    return False
            done += len(x)
        return True
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
