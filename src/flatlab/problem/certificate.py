"""Is the network linear in each of its parameters alone, around θ?

If it is (linear and convolutional layers, ReLU, max-pooling, BatchNorm with fixed statistics, each
parameter used once), ∇²f has zero diagonal blocks there, so Tr ∇²L is the trace of the Gauss–Newton
part. The question is put to the function itself and not to the names of its layers: along a random
direction in one parameter, the second derivative of a random combination of outputs vanishes, with
probability one, only if that block of every ∇²f does.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.func import functional_call

from ..randomness import generator
from .problem import Problem, kernels

EXAMPLES = 16
TOLERANCE = 1e-10


def linear_in_each_parameter(problem: Problem, seed: int = 0) -> bool:
    """Return whether all diagonal blocks of ∇²f vanish, seen on a few examples in float64.

    Smooth activations and normalisations bend f by far more than rounding does. ReLU kinks carry
    curvature that no derivative sees; it is not counted here nor in the Hessian.
    """
    if problem.mode == "train":
        return False
    model = copy.deepcopy(problem.model).double()
    params: dict[str, Tensor] = {n: p for n, p in model.named_parameters() if n in problem.params}
    x = problem.batches[0][0][:EXAMPLES]
    x = x.double() if x.is_floating_point() else x
    draw = generator(seed, "certificate")

    def normal(like: Tensor) -> Tensor:
        return torch.as_tensor(draw.normal(size=tuple(like.shape))).to(like.device)

    with kernels():
        outputs = functional_call(model, params, (x,))
        size = float(outputs.detach().abs().max())
        mixed = (outputs * normal(outputs)).sum()
        gradients = torch.autograd.grad(
            mixed, list(params.values()), create_graph=True, allow_unused=True,
            materialize_grads=True,
        )  # fmt: skip
        for p, gradient in zip(params.values(), gradients, strict=True):
            v = normal(p) * (p.detach().norm() / p.numel() ** 0.5 + 1e-3)
            first = (gradient * v).sum()
            if not first.requires_grad:
                continue
            (bent,) = torch.autograd.grad(
                first, p, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            second = float((bent * v).sum())
            if abs(second) > TOLERANCE * (abs(float(first.detach())) + size):
                return False
    return True
