"""How the loss of an example changes with its input."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from ..errors import UserError
from ..problem import Problem
from ..problem.examples import require_examples
from ..problem.problem import kernels
from ..specs import spec
from .contract import About, Measured
from .effort import Effort


@spec
class InputGradient:
    """(1/n) Σ ‖∂ℓ_i/∂x_i‖₂, by one backward pass to the inputs."""

    about: ClassVar[About] = About(
        "E‖∇_x ℓ‖",
        "the mean norm of the loss gradient with respect to the input",
        "(1/n) Σ ‖∂ℓ(f(x_i), y_i)/∂x_i‖₂",
        "one gradient",
        "a property of the function on this data, not of the parameters; scales with 1/‖x‖",
        exact="yes",
        relu="invariant",
        batchnorm="invariant",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        require_examples(problem)
        norms = []
        for x, y in problem.batches:
            if not x.is_floating_point():
                raise UserError(
                    f"input_gradient needs real inputs, got {x.dtype}: leave it out for models "
                    "that read tokens"
                )
            x = x.detach().clone().requires_grad_(True)
            with kernels(), torch.enable_grad():
                (slope,) = torch.autograd.grad(problem.loss(problem.model(x), y), x)
            norms.append((slope.double() * len(x)).flatten(1).norm(dim=1).cpu().numpy())
        effort.spend()
        each = np.concatenate(norms)
        return Measured(float(each.mean()), 0.0, True, "exact", details={"examples": each})
