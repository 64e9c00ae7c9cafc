"""The weighted norm of a two-layer network."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor, nn

from ..errors import UserError
from ..problem import Problem
from ..specs import spec
from .chain import plain_sequential, steps, written_out
from .contract import About, Measured
from .effort import Effort


@spec
class WeightedNorm:
    """‖θ‖²_{2,q} = Σ_j (‖w_j‖² + b_j² + q a_j²) for f(x) = Σ_j a_j σ(w_j·x + b_j).

    q is the input dimension unless given. The reading is the square; its root is among the details.
    An output bias is not counted.
    """

    q: Annotated[float, Field(gt=0)] | None = None
    about: ClassVar[About] = About(
        "‖θ‖²_{2,q}",
        "the weighted norm of a two-layer network, squared",
        "Σ_j (‖w_j‖² + b_j² + q a_j²), q = d unless given",
        "nothing: the parameters alone",
        "defined for two-layer networks without normalisation only",
        exact="yes",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        first, bias, second = _layers(problem.model)
        q = self.q or float(first.shape[1])
        squares = [float(p.detach().double().square().sum()) for p in (first, *bias, second)]
        value = sum(squares[:-1]) + q * squares[-1]
        return Measured(value, 0.0, True, "exact", details={"root": math.sqrt(value), "q": q})


def _layers(model: nn.Module) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
    """Return W, (b,) or nothing, and a."""
    arch = written_out(model)
    if arch is not None and hasattr(model, "W2") and not hasattr(model, "W3"):
        if getattr(arch, "norm", None) is None:
            bias = (model.b1,) if isinstance(getattr(model, "b1", None), Tensor) else ()
            return model.W1, bias, model.W2  # type: ignore[return-value]
    elif plain_sequential(model):
        modules = [module for _, module in steps(model)]  # type: ignore[arg-type]
        linear = [module for module in modules if isinstance(module, nn.Linear)]
        others = [module for module in modules if not isinstance(module, nn.Linear)]
        plain = not any(list(module.parameters()) for module in others)
        if len(linear) == 2 and len(modules) == 3 and plain:
            bias = () if linear[0].bias is None else (linear[0].bias,)
            return linear[0].weight, bias, linear[1].weight
    raise UserError(
        "weighted_norm is defined for two-layer networks: flatlab's own without normalisation, or "
        "a Sequential of Linear, an activation and Linear"
    )
