"""How SGD's noise is aligned with the geometry of the model: the factors α, β and μ."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..problem import Problem
from ..problem.examples import ROOM, factors, pieces, rows
from ..problem.slopes import slopes
from ..specs import spec
from .contract import About, Measured
from .effort import Effort
from .eigenvalues import Limit, Tolerance
from .probes import Sample, sample

Moments = NDArray[np.float64]  # Tr ΣG, ‖Σ‖_F², ‖G‖_F²


def alphabet(moments: Moments, scale: float) -> NDArray[np.float64]:
    """Return α, β and μ; α is NaN without noise, β and μ are NaN where all ∂ℓ_i/∂f vanish."""
    mixed, noise, gram = moments
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = mixed / np.sqrt(noise * gram)
        beta = np.sqrt(noise / gram) / np.float64(scale)
        return np.array([alpha, beta, mixed / (gram * scale)])


def _exact(problem: Problem, effort: Effort) -> Moments:
    """Form all per-example gradients, and products on the shorter side."""
    noise, gram = [], []
    for x, outputs, y in pieces(problem):
        noise.append(rows(problem, x, slopes(problem.loss, outputs, y)).double())
        _, unit = factors(problem, "gram", outputs, y)
        for c in range(unit.shape[2]):
            gram.append(rows(problem, x, unit[:, :, c].reshape(outputs.shape)).double())
            effort.spend()
    R, J = torch.cat(noise), torch.cat(gram)
    R = R - R.mean(0)
    if problem.size <= len(J):
        S, G = R.T @ R, J.T @ J
        found = [(S * G).sum(), (S * S).sum(), (G * G).sum()]
    else:
        found = [(A @ B.T).square().sum() for A, B in ((R, J), (R, R), (J, J))]
    return np.array([float(value) for value in found]) / problem.n**2


def _power(problem: Problem) -> float:
    """Return E‖∂ℓ_i/∂f‖², which is 2L for ℓ = ½‖f − y‖²."""
    found = (slopes(problem.loss, f, y) for _, f, y in pieces(problem))
    return sum(float(u.double().square().sum()) for u in found) / problem.n


@spec
class Alignment:
    """α, β and μ = αβ of the noise covariance Σ against the Gram matrix G = (1/n) Σ J_iᵀ J_i.

    Σ = (1/n) Σ ∇ℓ_i ∇ℓ_iᵀ − ∇L ∇Lᵀ is the covariance of the gradient of one random example, and

        α = Tr(ΣG) / (‖Σ‖_F ‖G‖_F),   β = ‖Σ‖_F / (2L ‖G‖_F),   μ = αβ = Tr(ΣG) / (2L ‖G‖_F²)

    2L stands for E‖∂ℓ_i/∂f‖². For ℓ = ½‖f − y‖² that is 2L; the factors are then the same for every
    multiple of a loss, and defined for other losses too. If Σ = 2L G, all three are 1. They are
    exact if all per-example gradients fit in memory and there is no budget. Otherwise they are
    estimated with random signs v, since E vᵀABv = Tr AB for symmetric A and B.
    """

    tolerance: Tolerance = 0.1
    max_products: Limit = 1000
    exact: bool | None = None
    about: ClassVar[About] = About(
        "α, β, μ",
        "the alignment of SGD's noise with the geometry of the model, and its size",
        "α = Tr(ΣG)/(‖Σ‖_F‖G‖_F), β = ‖Σ‖_F/(2L‖G‖_F), μ = αβ, with 2L = E‖∂ℓ_i/∂f‖²",
        "exact: a backward pass for each output; otherwise about 100 products with both matrices",
        "Σ is centred: with equal gradients it vanishes, μ is 0 and α undefined (NaN); all are NaN "
        "where every example is fitted exactly",
        exact="yes for small problems; otherwise a standard error",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        scale, labels = _power(problem), ("α", "β", "μ")
        outputs = problem.outputs[0][0].numel()
        fits = problem.n * (outputs + 1) * problem.size <= ROOM and not effort.limited
        if fits if self.exact is None else self.exact:
            values = alphabet(_exact(problem, effort), scale)
            return Measured(
                values, 0 * np.nan_to_num(values), True, "exact, per-example gradients",
                labels=labels,
            )  # fmt: skip
        drawn = self._probe(problem, effort)
        mean, n = drawn.mean, len(drawn.rows)
        values = alphabet(mean, scale)
        # The delta method, with the derivatives of each factor by finite differences.
        spread = (drawn.rows - mean) / n
        nearby = np.array([alphabet(mean + row, scale) - values for row in spread])
        stderr = np.sqrt((nearby**2).sum(0) * n / (n - 1))
        return Measured(
            values, stderr, False, f"{n} probes", drawn.dof, drawn.complete, labels,
        )  # fmt: skip

    def _probe(self, problem: Problem, effort: Effort) -> Sample:
        fisher, gram = problem.matrix("fisher"), problem.matrix("gram")
        _, slope = problem.value_and_gradient()
        slope = slope.to("cpu", torch.float64)
        effort.expect(200)

        def noise(v: Tensor) -> Tensor:
            return fisher @ v - slope * (slope @ v)

        def probe(i: int) -> Moments:
            v = effort.signs("alignment", i, problem.size)
            S, G = noise(v), gram @ v
            effort.spend()
            return np.array([float(S @ G), float(S @ S), float(G @ G)])

        return sample(
            probe,
            effort,
            lambda mean, error: bool((error <= self.tolerance * np.abs(mean)).all()),
            self.max_products,
        )
