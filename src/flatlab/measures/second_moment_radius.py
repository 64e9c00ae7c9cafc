"""The stability threshold of SGD itself: the spectral radius of its second-moment operator."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from ..errors import UserError
from ..outside.memory import require_memory
from ..problem import Problem
from ..problem.examples import every_row, example_factors
from ..specs import spec
from .contract import About, Measured
from .effort import Effort
from .eigenvalues import Limit, Tolerance
from .lanczos import ROUNDING
from .rounding import lost
from .second_moment import FLAT, LinearisedSGD, batch_noise


@spec
class SecondMomentRadius:
    """ρ(T), T(C) = E (I − ηH_B) C (I − ηH_B): SGD is stable in the mean square where ρ ≤ 1.

    H_B is the mean over a batch of the examples' Gauss–Newton matrices
    G_i = J_iᵀ (∂²ℓ_i/∂f²) J_i, which are their Hessians where every example is fitted. E θθᵀ
    becomes T(E θθᵀ) in a step of SGD linearised there. The value is the middle of two proven
    bounds. `second_moment` describes the method.
    """

    lr: Annotated[float, Field(gt=0)] = 0.1
    batch_size: Annotated[int, Field(gt=0)] = 1
    replacement: bool = False
    tolerance: Tolerance = 1e-3
    max_products: Limit = 300
    about: ClassVar[About] = About(
        "ρ(T)",
        "the stability threshold of SGD: how its second moment grows in a step near the minimum",
        "spectral radius of C ↦ E[(I − ηH_B) C (I − ηH_B)] on the span of all G_i, with H_B the "
        "mean of G_i = J_iᵀ (∂²ℓ_i/∂f²) J_i over a random batch; at most 1: stable",
        "a backward pass for each output, and about 10 to 200 products of matrices with a row for "
        "each output of each example",
        "of SGD linearised at this point: it says something of SGD only where every ∇ℓ_i is small "
        "(details['gradient_rms']) and G_i is the Hessian. Directions with curvature below "
        f"{FLAT:.0e} of the largest are left out. Where it is stable ρ is close to 1, as flat "
        "directions shrink slowly; details['critical_lr'] says how far η is from the threshold",
        exact="no: two proven bounds",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure; the details have both bounds of ρ and of the critical learning rate."""
        batch_noise(self.batch_size, problem.n, self.replacement)
        exact = problem.precise
        width = exact.outputs[0][0].numel()
        require_memory(
            3 * 8 * exact.n * width * exact.size,
            f"gradients of {exact.n * width:,} outputs",
            "measure fewer examples, or fewer parameters with params=",
        )
        effort.expect(60)
        rows, signs = example_factors(exact, effort.spend)
        sgd = LinearisedSGD.of_rows(rows.numpy(), signs.numpy())
        if not sgd.rank:
            raise UserError(
                "second_moment_radius needs a loss with curvature: every G_i is 0 here, so that "
                "linearised SGD does not move"
            )
        settings: dict[str, Any] = {"batch_size": self.batch_size, "replacement": self.replacement}
        settings |= {"tolerance": self.tolerance, "limit": self.max_products, "effort": effort}
        found = sgd.radius(self.lr, **settings)
        critical = sgd.critical_lr(**settings)
        error = (found.high - found.low) / 2 + self._rounding(exact, sgd, found.matrix)
        gradients, _ = every_row(exact, "fisher")
        size = math.sqrt(float(gradients.square().sum()) / exact.n)
        details = {
            "low": found.low,
            "high": found.high,
            "critical_lr": critical.middle,
            "critical_lr_low": critical.low,
            "critical_lr_high": critical.high,
            "rank": sgd.rank,
            "gradient_rms": size,
            "gradient_norm": float(exact.value_and_gradient()[1].norm()),
        }
        method = f"two proven bounds, {found.products} products; ∇ℓ_i of size {size:.1g}"
        return Measured(
            found.middle, error, False, method, complete=found.complete, details=details
        )

    def _rounding(self, problem: Problem, sgd: LinearisedSGD, top: Any) -> float:
        """Return how far rounding of the gradients may move ρ: ‖δT(C)‖ at its eigenmatrix C."""
        basis, kappa = sgd.basis, batch_noise(self.batch_size, sgd.n, self.replacement)

        def product(part: Problem) -> Any:
            rows, signs = example_factors(part)
            inside, s = rows.numpy() @ basis.T, signs.numpy()
            flat = inside.reshape(-1, sgd.rank)
            H = (flat.T * s.ravel()) @ flat / len(inside)
            mean = H @ top @ H
            each = LinearisedSGD(inside, s, sgd.curvatures, basis).each(top)
            T = self.lr**2 * ((1 - kappa) * mean + kappa * each) - self.lr * (H @ top + top @ H)
            return torch.from_numpy(T)

        scale = (1 + self.lr * float(np.abs(sgd.curvatures).max())) ** 2
        return float(np.linalg.norm(lost(problem, product))) + ROUNDING * scale
