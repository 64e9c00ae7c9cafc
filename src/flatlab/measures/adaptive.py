"""Sharpness in units of each parameter's own size, so that ReLU rescaling does not change it.

With δ = |θ| ⊙ u a parameter moves by at most a fraction of itself, and a zero parameter stays. A
rescaling θ → Dθ by a positive diagonal D that preserves the function maps the regions of δ onto
each other.

References: Kwon et al., ASAM, ICML 2021; Andriushchenko et al., A modern look at the relationship
between sharpness and generalization, ICML 2023.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import UserError
from ..problem import Problem
from ..specs import spec
from .ascent import Norm, Radius, Region, worst_rise
from .average_sharpness import Sigma, average_rise
from .contract import About, Measured
from .effort import Effort
from .eigenvalues import Limit, Tolerance
from .sam_sharpness import SamSharpness


def with_normalised_logits(problem: Problem) -> Problem:
    """Return the problem with every example's logits divided by their standard deviation.

    f / √((1/K) Σ_k (f_k − mean f)²), as the paper defines it; the authors' code divides by the norm
    of the centred logits, which is √K times as much.
    """
    shape = problem.outputs[0].shape
    if len(shape) != 2 or shape[1] < 2:
        raise UserError(
            f"normalise_logits needs outputs (examples, classes) with at least two classes, got "
            f"{tuple(shape)}: set normalise_logits=False"
        )
    loss = problem.loss

    def normalised(outputs: Tensor, y: Tensor) -> Any:
        spread = (outputs - outputs.mean(1, keepdim=True)).square().mean(1, keepdim=True).sqrt()
        return loss(outputs / spread.clamp(min=1e-10), y)

    made = copy.copy(problem)
    made.loss = normalised
    return made


def _prepared(problem: Problem, normalise_logits: bool) -> tuple[Problem, Tensor]:
    sizes = problem.theta.abs().to("cpu", torch.float64)
    return with_normalised_logits(problem) if normalise_logits else problem, sizes


_FOUND = (
    "the best rise that was found, a lower bound of the maximum. Biases and weights alike are "
    "scaled by their size; a zero parameter is never moved"
)


@spec
class AdaptiveSharpness(SamSharpness):
    """max_{‖δ/|θ|‖₂ ≤ ρ} L(θ + δ) − L(θ), by projected ascent from several starts."""

    rho: Radius = 0.5
    normalise_logits: bool = False
    norm: ClassVar[Norm] = "l2"
    about: ClassVar[About] = About(
        "S_ρ (adaptive)",
        "the largest rise of the loss in an ellipsoid with axes ρ|θ_i|",
        "max_{‖δ/|θ|‖₂ ≤ ρ} L(θ + δ) − L(θ)",
        "as sam_sharpness_steps",
        _FOUND,
        exact="no: a lower bound of the maximum",
        relu="invariant",
        batchnorm="invariant",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        measured, sizes = _prepared(problem, self.normalise_logits)
        region = Region(sizes, self.rho, self.norm)
        return worst_rise(measured, region, effort, self.steps, self.restarts)


@spec
class AdaptiveLinfSharpness(AdaptiveSharpness):
    """max_{|δ_i| ≤ ρ|θ_i|} L(θ + δ) − L(θ), by projected ascent from several starts."""

    rho: Radius = 0.002
    norm: ClassVar[Norm] = "linf"
    about: ClassVar[About] = About(
        "S_ρ (adaptive, ℓ∞)",
        "the largest rise of the loss in a box with sides ρ|θ_i|",
        "max_{|δ_i| ≤ ρ|θ_i|} L(θ + δ) − L(θ)",
        "as sam_sharpness_steps",
        _FOUND,
        exact="no: a lower bound of the maximum",
        relu="invariant",
        batchnorm="invariant",
    )


@spec
class AdaptiveAverageSharpness:
    """E L(θ + σ|θ| ⊙ ξ) − L(θ) with ξ ~ N(0, I), in antithetic pairs."""

    sigma: Sigma = 0.1
    normalise_logits: bool = False
    tolerance: Tolerance = 0.05
    max_products: Limit = 400
    about: ClassVar[About] = About(
        "S_σ (adaptive)",
        "the mean rise of the loss under noise in proportion to each parameter",
        "E L(θ + σ|θ| ⊙ ξ) − L(θ), ξ ~ N(0, I)",
        "two passes a pair, until the standard error is small",
        "for σ → 0 it is ½ σ² Σ θ_i² ∂²L/∂θ_i²; a zero parameter is never moved",
        exact="no: a standard error",
        relu="invariant",
        batchnorm="invariant",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        measured, sizes = _prepared(problem, self.normalise_logits)
        return average_rise(measured, effort, self.sigma * sizes, self.tolerance, self.max_products)
