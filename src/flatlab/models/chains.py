"""The scalar networks of the compiled engine as values: `TwoLayer` and `Deep`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..errors import UserError
from ..randomness import generator
from ..specs import spec
from .contract import Architecture, Examples, Params

if TYPE_CHECKING:
    from torch import nn

NORM_EPSILON = 1e-5  # added to the variance by the standard norms, as torch.nn does by default

Width = Annotated[int, Field(gt=0)]


@spec
class Init:
    """How parameters start. The sources are silent; these are our choices.

    Attributes:
        law: "torch" draws every weight and bias from U(−1/√fan_in, 1/√fan_in), the default of
            `torch.nn.Linear`; "normal" draws weights from N(0, 1/fan_in) and sets biases to zero.
        first_layer_scale: Factor on the first layer (weights and bias) after the draw.
        gamma_scale: γ of a normalisation starts at gamma_scale/√width in every coordinate (β at 0).
            At γ = 1 the squared gradient ‖∇_{W2} f‖² = Σ γ_j² Â_j² is about the width, and SGD at a
            learning rate of 0.005 diverges.
    """

    law: Literal["torch", "normal"] = "torch"
    first_layer_scale: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    gamma_scale: Annotated[float, Field(gt=0, le=1e6)] = 4.0


class _Chain(Architecture):
    """What both families share: named weights in one order, drawn without torch.

    Attributes:
        stacked: Whether weight matrices may lie between the first layer and the last.
    """

    init: Init
    stacked: ClassVar[bool]

    @property
    def chain(self) -> Chain:
        """Itself."""
        return cast("Chain", self)

    def shapes(self, d: int) -> dict[str, tuple[int, ...]]:
        """Return name → shape in storage order."""
        arch, m = self.chain, self.chain.width
        shapes: dict[str, tuple[int, ...]] = {"W1": (m, d)}
        if arch.bias:
            shapes["b1"] = (m,)
        for layer in range(2, arch.depth):
            shapes[f"W{layer}"] = (m, m)
        shapes[self.last_layer] = (m,)
        if arch.norm not in (None, "layer"):
            shapes["gamma"] = (1 if arch.gamma == "shared" else m,)
        if arch.norm in ("standard_batch", "standard_layer"):
            shapes["beta"] = (m,)
        return shapes

    @property
    def last_layer(self) -> str:
        """Name of the output weights."""
        return f"W{self.chain.depth}"

    def initial(self, d: int, seed: int) -> Params:
        """Draw float64 starting parameters for inputs of dimension d."""
        rng, init, shapes = generator(seed, "init"), self.init, self.shapes(d)
        params: Params = {}
        for name, shape in shapes.items():
            fan_in = d if name == "b1" else shape[-1]
            if name == "gamma":
                params[name] = np.full(shape, init.gamma_scale / np.sqrt(len(params["W2"])))
            elif name == "beta" or (name == "b1" and init.law == "normal"):
                params[name] = np.zeros(shape)
            elif init.law == "normal":
                params[name] = rng.normal(size=shape) / np.sqrt(fan_in)
            else:
                params[name] = rng.uniform(-1, 1, shape) / np.sqrt(fan_in)
            if name in ("W1", "b1"):
                params[name] *= init.first_layer_scale
        return params

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        """Return the number of parameters on inputs of this shape."""
        del outputs  # one, whatever the labels are
        return sum(math.prod(part) for part in self.shapes(math.prod(shape)).values())

    def module(self, data: Examples, seed: int) -> nn.Module:
        """Return the network with its initial weights."""
        from .build import build

        if len(data.shape) != 1 or data.outputs != 1:
            raise UserError(
                f"{self.kind} takes inputs in one dimension and one label a row, got inputs of "
                f"shape {data.shape} and {data.outputs} outputs: use mlp, cnn or vgg11"
            )
        return build(self.chain, self.initial(data.shape[0], seed), data.x_train)

    @property
    def parts(self) -> frozenset[str]:
        """Parts that a phase may treat apart."""
        there = {"first_layer"}
        there |= {"bias"} if "b1" in self.shapes(1) else set()
        there |= {"gamma"} if "gamma" in self.shapes(1) else set()
        normalised = getattr(self, "norm", None) in ("batch", "standard_batch")
        return frozenset(there | ({"statistics"} if normalised else set()))


@spec
class TwoLayer(_Chain):
    """A two-layer network f(x) = W2 · N(σ(W1 x + b1)).

    Attributes:
        width: Number m of hidden neurons.
        bias: Whether the first layer has a bias b1.
        norm: None; "batch" is simplified BatchNorm, γ_j u_j / rms_j with rms_j taken over the whole
            training set; "layer" is simplified LayerNorm, u / max(‖u‖, ln_epsilon). The standard
            ones subtract a mean, divide by √(variance + 1e-5), and have a scale and a shift:
            γ_j (u_j − μ)/√(v + 1e-5) + β_j, with the mean μ and the variance v of neuron j over the
            whole training set ("standard_batch") or of u over its neurons ("standard_layer").
        ln_epsilon: ε of simplified LayerNorm.
        gamma: None gives every neuron a γ_j of its own; "shared" is one γ for all of them, for the
            norm "batch" alone.
    """

    width: Width = 500
    bias: bool = True
    norm: Literal["batch", "layer", "standard_batch", "standard_layer"] | None = None
    activation: Literal["relu", "softplus", "tanh", "identity"] = "relu"
    ln_epsilon: Annotated[float, Field(ge=1e-15, le=1e15)] = 1e-3
    init: Init = Field(default_factory=Init)
    gamma: Literal["shared"] | None = None
    kind: ClassVar[str] = "two_layer"
    stacked: ClassVar[bool] = False
    depth: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if self.gamma is not None and self.norm != "batch":
            raise UserError(
                f"gamma={self.gamma!r} is for norm='batch', got norm={self.norm!r}: drop gamma or "
                "set norm='batch'"
            )


@spec
class Deep(_Chain):
    """A ReLU network of any depth, f(x) = W_D σ(W_{D−1} ⋯ σ(W1 x + b1)).

    Attributes:
        depth: Number D of weight layers; 2 is `TwoLayer` without normalisation.
        width: Width of every hidden layer.
        bias_first: Whether the first layer, and only it, has a bias.
    """

    depth: Annotated[int, Field(ge=2, le=1000)] = 3
    width: Width = 500
    bias_first: bool = True
    init: Init = Field(default_factory=Init)
    kind: ClassVar[str] = "deep"
    stacked: ClassVar[bool] = True
    # What `TwoLayer` leaves to choose, as it is here.
    norm: ClassVar[None] = None
    activation: ClassVar[str] = "relu"
    gamma: ClassVar[None] = None
    ln_epsilon: ClassVar[float] = 0.0

    @property
    def bias(self) -> bool:
        """Whether the first layer has a bias, by the name `TwoLayer` has for it."""
        return self.bias_first


Chain = TwoLayer | Deep


def activated(arch: Chain, h: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return σ(h) of an architecture."""
    kind = arch.activation
    if kind == "softplus":
        return np.logaddexp(h, 0.0)
    if kind == "tanh":
        return np.tanh(h)
    return h if kind == "identity" else np.maximum(h, 0.0)
