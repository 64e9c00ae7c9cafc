"""Optimizers as values: which algorithm takes the steps, and its own options.

The learning rate is the phase's. The SAM family and label noise wrap a base optimizer, torch's SGD
or Adam. Its method `torch` builds the torch optimizer; specs themselves do not import torch.
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


class _Optimizer:
    """What training asks of an optimizer, as a plain one answers."""

    name: ClassVar[str]

    @property
    def stepping(self) -> Any:
        """The optimizer that takes the steps, `SGD` or `Adam`: itself, or the one it wraps."""
        return self

    @property
    def passes(self) -> float:
        """How many gradients of the batch an update takes, on average: one more with an ascent."""
        return 1 + 1 / getattr(self, "k", 1) if hasattr(self, "rho") else 1.0

    @property
    def label_noise(self) -> LabelNoise | None:
        """Itself if it adds noise to the labels."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the optimizer as a table; options at their defaults are left out."""
        found = {"name": self.name, **to_dict(self, leave="base")}
        if self.stepping not in (self, SGD()):
            found["base"] = self.stepping.to_dict()
        return found

    def torch(self, params: Any, lr: float, net: nn.Module, loss: Loss) -> torch.optim.Optimizer:
        """Return the torch optimizer over parameters or groups of them."""
        import torch

        make: Any = getattr(torch.optim, type(self).__name__)  # the specs have torch's names
        made: torch.optim.Optimizer = make(params, lr=lr, **self.options())
        return made

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of the torch optimizer."""
        return {name: value for name, value in vars(self).items() if name != "base"}


@spec
class SGD(_Optimizer):
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


@spec
class Adam(_Optimizer):
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


BaseSpec = SGD | Adam
BASES: dict[str, type[SGD] | type[Adam]] = {"sgd": SGD, "adam": Adam}


@spec
class _Wrapped(_Optimizer):
    """An optimizer that changes the gradients of a base, which takes the steps."""

    base: BaseSpec = Field(default_factory=SGD, kw_only=True)

    @property
    def stepping(self) -> BaseSpec:
        """The base."""
        return self.base

    def torch(self, params: Any, lr: float, net: nn.Module, loss: Loss) -> torch.optim.Optimizer:
        """Return the wrapper of `flatlab.optim` around the base."""
        from .. import optim

        inner = self.base.torch(params, lr, net, loss)
        made: torch.optim.Optimizer = optim.OPTIMIZERS[self.name](inner, **self.options())
        return made


@spec
class SAMSpec(_Wrapped):
    """Ascent of length rho along the batch gradient, then descent from there.

    batch_size=1 is 1-SAM, batch_size=m is m-SAM.
    """

    rho: Size  # type: ignore[misc]  # base is only taken by name
    name: ClassVar[str] = "sam"


@spec
class USAMSpec(_Wrapped):
    """SAM with the un-normalised ascent rho · gradient."""

    rho: Size  # type: ignore[misc]  # base is only taken by name
    name: ClassVar[str] = "usam"


@spec
class ASAMSpec(_Wrapped):
    """SAM with the ascent scaled by the size of each weight (Kwon et al. 2021)."""

    rho: Size = 0.5
    eta: Size = 0.01
    adapt_bias: bool = True
    name: ClassVar[str] = "asam"


@spec
class GSAMSpec(_Wrapped):
    """SAM that also descends the surrogate gap (Zhuang et al. 2022)."""

    rho: Size = 0.05
    alpha: Size = 0.4
    name: ClassVar[str] = "gsam"


@spec
class LookSAMSpec(_Wrapped):
    """SAM that climbs in every k-th step only (Liu et al. 2022)."""

    rho: Size = 0.05
    k: Annotated[int, Field(gt=0)] = 5
    alpha: Size = 0.7
    name: ClassVar[str] = "look_sam"


@spec
class FriendlySAMSpec(_Wrapped):
    """SAM along the part of the gradient that the batch adds to a running mean (Li et al. 2024)."""

    rho: Size = 0.05
    sigma: Size = 1.0
    lam: Share = 0.9
    name: ClassVar[str] = "friendly_sam"


@spec
class MSAMSpec(_Wrapped):
    """The mean of SAM gradients over groups of m examples of the batch (m-sharpness)."""

    rho: Size = 0.05
    m: Annotated[int, Field(gt=0)] = 1
    name: ClassVar[str] = "msam"

    def torch(self, params: Any, lr: float, net: nn.Module, loss: Loss) -> torch.optim.Optimizer:
        """Return the optimizer, which evaluates the network itself."""
        from ..optim import MSAM

        inner = self.base.torch(params, lr, net, loss)
        return MSAM(net, loss.torch, params=inner, **self.options())


@spec
class LabelNoise(_Wrapped):
    """SGD on labels y + noise · (random sign), a fresh sign for each example and step.

    The kind "gaussian" adds noise · (standard normal) instead; "flip" moves an integer class to
    another one, drawn uniformly, with probability noise.
    """

    noise: Size  # type: ignore[misc]  # as above
    noise_kind: Literal["sign", "gaussian", "flip"] = "sign"
    name: ClassVar[str] = "label_noise"

    @property
    def label_noise(self) -> LabelNoise | None:
        """Itself, unless the noise is zero."""
        return self if self.noise else None

    def torch(self, params: Any, lr: float, net: nn.Module, loss: Loss) -> torch.optim.Optimizer:
        """Return the base's: the trainer draws the noise."""
        return self.base.torch(params, lr, net, loss)


OptimizerSpec = (
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
SPECS: dict[str, Any] = {cls.name: cls for cls in get_args(OptimizerSpec)}
_FIELDS = {name: frozenset(f.name for f in dataclasses.fields(cls)) for name, cls in SPECS.items()}
# Options without which an optimizer would be its base, and an example of each.
NEEDED = {
    "sam": ("rho", "the radius of its ascent, e.g. rho=0.05"),
    "usam": ("rho", "the factor of its ascent, e.g. rho=0.05"),
    "label_noise": ("noise", "the size of the noise, e.g. noise=0.3"),
}
OPTIONS = frozenset().union(*_FIELDS.values()) - {"base"}


def optimizer_of(given: Any, options: Mapping[str, Any]) -> OptimizerSpec:
    """Return the optimizer that a phase means.

    Args:
        given: An optimizer, its name, or a table {"name": …, …}.
        options: Changes, by the names of the optimizer's fields or its base's. An option that the
            optimizer lacks is refused unless it is 0 or None, which changes nothing.
    """
    table = {"name": given} if isinstance(given, str) else given
    table = given.to_dict() if isinstance(given, OptimizerSpec) else table
    if not isinstance(table, Mapping):
        raise UserError(f"an optimizer is a name such as 'sgd', a table or a spec, got {given!r}")
    if isinstance(given, Mapping):
        require_once(given, options)
        require_once(given.get("base"), options)
    require_once(options.get("base"), options)
    fields = dict(table)
    name = fields.pop("name", None)
    if not isinstance(name, str) or name not in SPECS:
        raise unknown("optimizer", str(name), SPECS)
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
    option, what = NEEDED.get(name, ("", ""))
    if option and fields.get(option) is None:
        raise UserError(f"{name!r} needs {option}, {what}; {option}=0 leaves its base optimizer")
    if base:
        fields["base"] = _made(BASES[base.pop("name")], base)
    return _made(SPECS[name], fields)  # type: ignore[no-any-return]


def require_once(table: Any, options: Mapping[str, Any]) -> None:
    """Refuse an option that is given by its name and in a table or a spec, too."""
    table = table.to_dict() if isinstance(table, OptimizerSpec) else table
    for key in table if isinstance(table, Mapping) else ():
        if key in options:
            values = f"{table[key]!r} and {options[key]!r}"
            raise UserError(f"{key} is given twice, {values}: give it once")


def without_zeros(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return an optimizer's table without a needed option that is 0, as older versions wrote it."""
    option, _ = NEEDED.get(str(table.get("name")), ("", ""))
    return {key: value for key, value in table.items() if key != option or value != 0}


def with_zeros(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return an optimizer's stored table with its needed option; the inverse of the above."""
    option, _ = NEEDED.get(str(table.get("name")), ("", ""))
    return {**({option: 0.0} if option else {}), **table}


def _base_table(given: Any) -> dict[str, Any]:
    """Read a base optimizer: its name, a table or a spec."""
    if isinstance(given, SGD | Adam):
        return given.to_dict()
    if isinstance(given, str):
        return {"name": given}
    if not isinstance(given, Mapping):
        raise UserError(f"base is a name such as 'sgd', a table or a spec, got {given!r}")
    return dict(given)


def _made(cls: Any, fields: Mapping[str, Any]) -> Any:
    """Build a spec; None stands for the default."""
    return from_dict(cls, {key: value for key, value in fields.items() if value is not None})
