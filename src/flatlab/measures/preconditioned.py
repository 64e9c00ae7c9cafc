"""The sharpness that an adaptive optimizer sees: the largest eigenvalue of P⁻¹∇²L."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ..problem import Matrix, Problem
from ..specs import spec
from .contract import About, Measured
from .effort import Effort
from .eigenvalues import Limit, Method, Tolerance
from .exact import Dense, whole
from .lanczos import HOW, largest
from .rounding import rounding, settled


@spec
class PreconditionedLambdaMax:
    """λ_max(P⁻¹∇²L) = λ_max(P^{-1/2} ∇²L P^{-1/2}) with the diagonal P of Adam or RMSprop.

    P = diag(√v̂ + ε) at the state of the optimizer that is given as `preconditioner`; for Adam the
    second moments v̂ = v/(1 − β₂ᵗ) are corrected for bias, for RMSprop v̂ = v. With learning rate η
    and P held fixed, Adam is unstable on a quadratic where this exceeds (2 + 2β₁)/((1 − β₁)η), and
    RMSprop without momentum where it exceeds 2/η: details["threshold"], if all parameters share it.
    The matrix is symmetric, so the bound is that of `lambda_max`.

    Reference: Cohen et al., Adaptive gradient methods at the edge of stability, 2022.
    """

    method: Method = "auto"
    tolerance: Tolerance = 1e-3
    max_products: Limit = 200
    about: ClassVar[About] = About(
        "λ_max(P⁻¹∇²L)",
        "the largest eigenvalue of the Hessian in the metric of Adam's or RMSprop's preconditioner",
        "max_{‖v‖=1} vᵀP^{-1/2}∇²L P^{-1/2}v, P = diag(√v̂ + ε) with the optimizer's second "
        "moments v̂, corrected for bias in Adam",
        "about 20 to 50 products with the matrix",
        "P is that of the last step and is held fixed; the correction of Adam's momentum in its "
        "first steps and weight decay are left out. ReLU kinks are not seen",
        exact="exact up to about 1,000 parameters; otherwise a bound that holds with probability "
        "1 − 10⁻⁶",
    )

    def require(self, problem: Problem) -> None:
        """Raise if there is no preconditioner."""
        problem.preconditioner()

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure; the eigenvector of the symmetric form is in the details."""
        given = problem.preconditioner()
        root, known = given.diagonal.rsqrt(), whole(problem, "hessian", effort, self.method)
        details: dict[str, Any] = {"threshold": given.threshold}
        if known is not None:
            dense = Dense(root[:, None] * known.matrix * root)
            value, details["vector"] = dense.end(1)
            error = rounding(problem.precise, "hessian", root).size(dense.scale)
            return settled(value, error, f"{known.how}, {given.words}", details=details)
        effort.expect(30)
        noise, plain = rounding(problem, "hessian", root), problem.matrix("hessian")

        def product(v: Tensor) -> Tensor:
            return root * (plain @ (root * v)) / noise.unit

        matrix = Matrix(problem.size, product)
        top = largest(matrix, effort, self.tolerance, self.max_products, unit=noise.unit)
        error = top.error + noise.size(top.scale)
        method = f"{noise.said(HOW, self.tolerance * top.scale)}, {given.words}"
        details["vector"] = top.vector
        return Measured(top.value, error, False, method, None, top.complete, (), details)
