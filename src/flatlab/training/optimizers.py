"""Optimizers as values: which algorithm takes the steps, and its own options.

The learning rate is the phase's. The SAM family and label noise wrap a base optimizer, torch's SGD
or Adam. `make` builds the torch optimizer; specs themselves do not import torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from ..errors import UserError, unknown
from ..specs import from_dict, spec, to_dict

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ..losses import Loss

Size = Annotated[float, Field(ge=0, le=3e38)]
Share = Annotated[float, Field(ge=0, lt=1)]


@spec
class SGD:
    """(Stochastic) gradient descent with momentum and weight decay.

    v ← momentum·v + g + weight_decay·θ, θ ← θ − lr·v; with nesterov the step is
    g + weight_decay·θ + momentum·v. Without batch_size a step takes all examples.
    """

    momentum: Share = 0.0
    nesterov: bool = False
    weight_decay: Size = 0.0
    name: ClassVar[str] = "sgd"

    def __post_init__(self) -> None:
        if self.nesterov and not self.momentum:
            raise UserError("nesterov needs a momentum > 0, got 0: give one or drop nesterov")

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of torch.optim.SGD."""
        return dataclasses.asdict(self)


@spec
class Adam:
    """Adam (Kingma and Ba 2015); with decoupled weight decay it is AdamW."""

    beta1: Share = 0.9
    beta2: Share = 0.999
    epsilon: Annotated[float, Field(gt=0, lt=1)] = 1e-8
    weight_decay: Size = 0.0
    decoupled: bool = False
    name: ClassVar[str] = "adam"
    momentum: ClassVar[float] = 0.0

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of torch.optim.Adam."""
        return {
            "betas": (self.beta1, self.beta2),
            "eps": self.epsilon,
            "weight_decay": self.weight_decay,
            "decoupled_weight_decay": self.decoupled,
        }


Base = SGD | Adam
BASES: dict[str, type[SGD] | type[Adam]] = {"sgd": SGD, "adam": Adam}


@spec
class SAMSpec:
    """Ascent of length rho along the batch gradient, then descent from there.

    batch_size=1 is 1-SAM, batch_size=m is m-SAM.
    """

    rho: Size = 0.0
    base: Base = Field(default_factory=SGD)
    name: ClassVar[str] = "sam"


@spec
class USAMSpec:
    """SAM with the un-normalised ascent rho · gradient."""

    rho: Size = 0.0
    base: Base = Field(default_factory=SGD)
    name: ClassVar[str] = "usam"


@spec
class ASAMSpec:
    """SAM with the ascent scaled by the size of each weight (Kwon et al. 2021)."""

    rho: Size = 0.5
    eta: Size = 0.01
    adapt_bias: bool = True
    base: Base = Field(default_factory=SGD)
    name: ClassVar[str] = "asam"


@spec
class GSAMSpec:
    """SAM that also descends the surrogate gap (Zhuang et al. 2022)."""

    rho: Size = 0.05
    alpha: Size = 0.4
    base: Base = Field(default_factory=SGD)
    name: ClassVar[str] = "gsam"


@spec
class LookSAMSpec:
    """SAM that climbs in every k-th step only (Liu et al. 2022)."""

    rho: Size = 0.05
    k: Annotated[int, Field(gt=0)] = 5
    alpha: Size = 0.7
    base: Base = Field(default_factory=SGD)
    name: ClassVar[str] = "look_sam"


@spec
class FriendlySAMSpec:
    """SAM along the part of the gradient that the batch adds to a running mean (Li et al. 2024)."""

    rho: Size = 0.05
    sigma: Size = 1.0
    lam: Share = 0.9
    base: Base = Field(default_factory=SGD)
    name: ClassVar[str] = "friendly_sam"


@spec
class MSAMSpec:
    """The mean of SAM gradients over groups of m examples of the batch (m-sharpness)."""

    rho: Size = 0.05
    m: Annotated[int, Field(gt=0)] = 1
    base: Base = Field(default_factory=SGD)
    name: ClassVar[str] = "msam"


@spec
class LabelNoise:
    """SGD on labels y + noise · (random sign), a fresh sign for each example and step.

    The kind "gaussian" adds noise · (standard normal) instead; "flip" moves an integer class to
    another one, drawn uniformly, with probability noise.
    """

    noise: Size = 0.0
    noise_kind: Literal["sign", "gaussian", "flip"] = "sign"
    base: Base = Field(default_factory=SGD)
    name: ClassVar[str] = "label_noise"


Optimizer = (
    SGD
    | Adam
    | SAMSpec
    | USAMSpec
    | ASAMSpec
    | GSAMSpec
    | LookSAMSpec
    | FriendlySAMSpec
    | MSAMSpec
    | LabelNoise
)
OPTIMIZERS: dict[str, Any] = {cls.name: cls for cls in get_args(Optimizer)}
_FIELDS = {
    name: frozenset(f.name for f in dataclasses.fields(cls)) for name, cls in OPTIMIZERS.items()
}
OPTIONS = frozenset().union(*_FIELDS.values()) - {"base"}


def base_of(optimizer: Optimizer) -> Base:
    """Return the optimizer that takes the steps."""
    return optimizer if isinstance(optimizer, SGD | Adam) else optimizer.base


def described(name: str) -> str:
    """Return the first line of an optimizer's description."""
    return (OPTIMIZERS[name].__doc__ or "").partition("\n")[0]


def plain(optimizer: Optimizer) -> dict[str, Any]:
    """Return an optimizer as a table; options at their defaults are left out."""
    found = {"name": optimizer.name, **to_dict(optimizer, leave="base")}
    base = base_of(optimizer)
    if base is not optimizer and base != SGD():
        found["base"] = plain(base)
    return found


def optimizer_of(given: Any, options: Mapping[str, Any]) -> Optimizer:
    """Return the optimizer that a phase means.

    Args:
        given: An optimizer, its name, or a table {"name": …, …}.
        options: Changes, by the names of the optimizer's fields or its base's. An option that the
            optimizer lacks is refused unless it is 0 or None, which changes nothing.
    """
    table = {"name": given} if isinstance(given, str) else given
    table = plain(given) if isinstance(given, Optimizer) else table
    if not isinstance(table, Mapping):
        raise UserError(f"an optimizer is a name such as 'sgd', a table or a spec, got {given!r}")
    fields = dict(table)
    name = fields.pop("name", None)
    if not isinstance(name, str) or name not in OPTIMIZERS:
        raise unknown("optimizer", str(name), OPTIMIZERS)
    own, base, inner = _FIELDS[name], {}, frozenset[str]()
    if "base" in options and "base" not in own:
        raise UserError(f"{name!r} takes the steps itself and has no base: drop base")
    if "base" in own:
        base = {"name": "sgd", **_base_table(fields.pop("base", {}))}
        base |= _base_table(options.get("base", {}))
        if base["name"] not in BASES:
            raise unknown("base optimizer", str(base["name"]), BASES)
        inner = _FIELDS[base["name"]]
    for key, value in options.items():
        if key in own | inner and key != "base":
            (fields if key in own else base)[key] = value
        elif value and key != "base":
            having = [other for other, names in _FIELDS.items() if key in names]
            raise UserError(
                f"{name!r} has no option {key!r}, which is one of {', '.join(having) or 'none'}: "
                f"drop {key}={value!r} or choose another optimizer; {name!r} takes "
                f"{', '.join(sorted((own | inner) - {'base'}))}"
            )
    if base:
        fields["base"] = _made(BASES[base.pop("name")], base)
    return _made(OPTIMIZERS[name], fields)  # type: ignore[no-any-return]


def _base_table(given: Any) -> dict[str, Any]:
    """Read a base optimizer: its name, a table or a spec."""
    if isinstance(given, SGD | Adam):
        return plain(given)
    if isinstance(given, str):
        return {"name": given}
    if not isinstance(given, Mapping):
        raise UserError(f"base is a name such as 'sgd', a table or a spec, got {given!r}")
    return dict(given)


def _made(cls: Any, fields: Mapping[str, Any]) -> Any:
    """Build a spec; None stands for the default."""
    return from_dict(cls, {key: value for key, value in fields.items() if value is not None})


def make(
    optimizer: Optimizer, params: Any, lr: float, net: nn.Module, loss: Loss
) -> torch.optim.Optimizer:
    """Return the torch optimizer over parameters or groups of them.

    Label noise is drawn by the trainer, so its optimizer is the base.
    """
    import torch

    from .. import optim

    base = base_of(optimizer)
    cls = torch.optim.SGD if isinstance(base, SGD) else torch.optim.Adam
    inner: torch.optim.Optimizer = cls(params, lr=lr, **base.options())
    own = {name: value for name, value in dataclasses.asdict(optimizer).items() if name != "base"}
    if isinstance(optimizer, SGD | Adam | LabelNoise):
        return inner
    if isinstance(optimizer, MSAMSpec):
        return optim.MSAM(net, loss.torch, params=inner, **own)
    made: torch.optim.Optimizer = optim.OPTIMIZERS[optimizer.name](inner, **own)
    return made
