"""Norms of the parameters: ‖θ‖₂, ‖θ − θ₀‖₂, Fisher–Rao, path norm and weighted norm."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import UserError
from ..problem import Problem
from ..problem.examples import require_examples
from ..specs import spec
from .contract import About, Measured
from .effort import Effort
from .rescaling import HOMOGENEOUS, LINEAR, homogeneous, is_chain, matrices, steps, written_out
from .rounding import lost, settled


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

    def require(self, problem: Problem) -> None:
        """Raise if there are no reference parameters."""
        if problem.reference is None:
            remedy = "measure(..., reference=initial_state_dict)"
            raise UserError(f"distance needs parameters to measure from: {remedy}")

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        self.require(problem)
        assert problem.reference is not None
        return Measured(float((flat(problem) - problem.reference).norm()), 0.0, True, "exact")


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

        def root(part: Problem) -> float:
            return math.sqrt(max(0.0, float(theta @ (part.matrix("fisher") @ theta))))

        value = root(problem.precise)
        effort.spend()
        error, details = lost(problem.precise, root), {"squared": value**2}
        return settled(value, error, "exact, one product", details=details)


def _rows(weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the norm of every unit's weights and bias."""
    squared = weight.double().flatten(1).square().sum(1)
    return (squared if bias is None else squared + bias.double().square()).sqrt()


def _along(model: nn.Module, x: Tensor) -> float:
    """Return the path norm of a Sequential: norms in the first layer, absolute values above."""
    v: Tensor | None = None
    for _, module in steps(model):  # type: ignore[arg-type]
        if v is None and type(module) in LINEAR:
            norms = _rows(module.weight, module.bias)  # type: ignore[arg-type]
            x = module(x)
            if not isinstance(module, nn.Linear):  # one norm for each channel
                norms = norms.view(-1, *[1] * (x.ndim - 2))
            v = norms.expand_as(x).clone()  # a ReLU may work in place
        elif v is None:
            x = module(x)
        else:
            sizes = {name: p.double().abs() for name, p in module.named_parameters()}
            v = functional_call(module, sizes, (v,))
    assert v is not None
    return float(v.sum())


def _path_norm(model: nn.Module, x: Tensor) -> float:
    arch = written_out(model)
    if arch is not None and homogeneous(arch):
        first, *others = (W.double() for W in matrices(model))
        v = _rows(first, dict(model.named_parameters()).get("b1"))
        for W in others:
            v = W.abs() @ v
        return float(v.sum())
    kinds = {type(m) for _, m in steps(model)} if is_chain(model) else set()  # type: ignore[arg-type]
    transposed = any(kind.__name__.startswith("ConvTranspose") for kind in kinds)
    if not kinds & set(LINEAR) or transposed or kinds - set(LINEAR) - set(HOMOGENEOUS):
        raise UserError(
            "path_norm needs a Sequential of Linear or convolutional layers with only ReLU, "
            "pooling, dropout or reshaping between them"
        )
    return _along(model, x)


@spec
class PathNorm:
    """Σ over paths of ‖w_j‖ |w²_kj| ⋯ |w^D_o·|: norms in the first layer, absolute values above.

    For two layers it is Σ_j |a_j| ‖w_j‖, with the bias as one more weight of its unit. It bounds
    the sum of the outputs' Lipschitz constants. A bias in a later layer starts paths of its own;
    max-pooling passes on the largest; at the border of an image all weights of a filter count.
    """

    about: ClassVar[About] = About(
        "‖θ‖_P",
        "the path norm: products of weights along paths, summed",
        "Σ_j |a_j| ‖w_j‖ for two layers; 1ᵀ|W_D| ⋯ |W_2| (‖w_j‖)_j in general",
        "one pass",
        "of the whole network, whichever parameters are selected; grows fast with depth. Other "
        "authors take squares or absolutes in the first layer too",
        exact="yes",
        relu="invariant",
        batchnorm="does not apply",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        with torch.no_grad():
            value = _path_norm(problem.model, problem.batches[0][0][:1])
        effort.spend()
        return Measured(value, 0.0, True, "exact")


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
    elif is_chain(model):
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
