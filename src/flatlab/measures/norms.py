"""Norms of the parameters: ‖θ‖₂, ‖θ − θ₀‖₂ and the Fisher–Rao norm."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import UserError
from ..problem import Problem
from ..problem.examples import require_examples
from ..specs import spec
from .contract import About, Measured
from .effort import Effort


def flat(problem: Problem) -> Tensor:
    """Return θ in float64."""
    return problem.theta.to("cpu", torch.float64)


@spec
class ParameterNorm:
    """‖θ‖₂ of the selected parameters."""

    about: ClassVar[About] = About(
        "‖θ‖",
        "the Euclidean norm of the parameters",
        "√(Σ θ_i²)",
        "nothing",
        "the same function has parameters of many norms",
        exact="yes",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        return Measured(float(flat(problem).norm()), 0.0, True, "exact")


@spec
class Distance:
    """‖θ − θ₀‖₂ from reference parameters θ₀, such as the initial ones."""

    about: ClassVar[About] = About(
        "‖θ − θ₀‖",
        "the distance from reference parameters, such as the initial ones",
        "√(Σ (θ_i − θ₀_i)²)",
        "nothing",
        "neurons renamed or rescaled on the way count as distance",
        exact="yes",
        permutation="moves",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        if problem.reference is None:
            raise UserError(
                "distance needs parameters to measure from: "
                "measure(..., reference=initial_state_dict)"
            )
        start = problem.reference.to("cpu", torch.float64)
        return Measured(float((flat(problem) - start).norm()), 0.0, True, "exact")


@spec
class FisherRao:
    """√(θᵀFθ) with the empirical Fisher F = (1/n) Σ ∇ℓ_i ∇ℓ_iᵀ, so √((1/n) Σ ⟨θ, ∇ℓ_i⟩²).

    For a bias-free ReLU network of depth D, ⟨θ, ∇ℓ_i⟩ = D ⟨∂ℓ_i/∂f, f_i⟩ by Euler's identity.

    Reference: Liang et al., Fisher–Rao metric, geometry, and complexity of neural networks, 2019.
    """

    about: ClassVar[About] = About(
        "‖θ‖_FR",
        "the Fisher–Rao norm: the size of θ in the metric of the empirical Fisher",
        "√(θᵀ F θ), F = (1/n) Σ ∇ℓ_i ∇ℓ_iᵀ",
        "one product with the empirical Fisher",
        "labels are those of the data, not drawn from the model; it vanishes at interpolation",
        exact="yes",
        relu="invariant",
        batchnorm="invariant",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        require_examples(problem)
        theta = flat(problem)
        squared = max(0.0, float(theta @ (problem.matrix("fisher") @ theta)))
        effort.spend()
        details = {"squared": squared}
        return Measured(math.sqrt(squared), 0.0, True, "exact, one product", details=details)
