"""Phases: what a training run does, for how many epochs. A schedule is a sequence of phases."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Field

from ..errors import UserError, nearest, shown, whole_number
from ..specs import from_dict, spec, to_dict
from .optimizers import OPTIONS, OptimizerSpec, optimizer_of, require_once

T = TypeVar("T")
Order = Literal["replacement", "fixed"]
Rate = Annotated[float, Field(ge=0, le=3e38)]


@spec
class Until:
    """Where a phase stops before its last epoch; with both, as soon as one is reached.

    The whole training set is evaluated after every `every` epochs. A phase that ends without
    reaching its target ends the run, with the status "missed".

    Attributes:
        accuracy: Training accuracy to reach, for labels that are classes or ±1.
        loss: Training loss to fall to.
        every: Epochs between two looks.
    """

    accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    loss: Annotated[float, Field(ge=0)] | None = None
    every: Annotated[int, Field(gt=0)] = 1

    def __post_init__(self) -> None:
        if self.accuracy is None and self.loss is None:
            raise UserError("until needs a training accuracy in (0, 1] or a training loss")

    def describe(self) -> str:
        """Return the target in words.

        >>> Until(accuracy=0.99).describe()
        'training accuracy 0.99'
        """
        parts = (("training accuracy", self.accuracy), ("training loss", self.loss))
        return " or ".join(f"{what} {value:g}" for what, value in parts if value is not None)

    def reached(self, row: Mapping[str, float]) -> bool:
        """Return whether the measured training loss or error is at the target."""
        accurate = self.accuracy is not None and 1 - row["train_error"] >= self.accuracy
        return accurate or (self.loss is not None and row["train_loss"] <= self.loss)


@spec
class FirstLayer:
    """What a phase does to the first layer alone, for the networks of the engine.

    Attributes:
        max_norm: After each step the first layer (weights and bias together) is projected to the
            Frobenius ball of this radius; None leaves it free.
        norm_rule: "each" holds weights and bias each to a ball of this radius; "held" rescales the
            layer to this norm where it is below, too.
        bias_lr: Learning rate of the bias; None is lr, 0 leaves the bias as it is.
        bias_weight_decay: Weight decay of the bias; None is that of the optimizer.
    """

    max_norm: Annotated[float, Field(ge=1e-15, le=1e15)] | None = None
    norm_rule: Literal["each", "held"] | None = None
    bias_lr: Rate | None = None
    bias_weight_decay: Rate | None = None

    def __post_init__(self) -> None:
        if self.norm_rule is not None and self.max_norm is None:
            raise UserError(
                f"norm_rule={self.norm_rule!r} says how max_first_layer_norm is meant: give it too"
            )

    @property
    def bias_apart(self) -> bool:
        """Whether the bias has a learning rate or a weight decay of its own."""
        return self.bias_lr is not None or self.bias_weight_decay is not None


@spec
class StepVariation:
    """Changes of the step itself, for choices that a source leaves unsaid.

    Attributes:
        input_noise: Standard deviation of the Gaussian noise on every input, fresh for each example
            and step and the same in both gradients of a step; None is no noise.
        second_batch: For "sam" and "usam": None takes both gradients of a step on one batch;
            "other" takes the second on a batch from an order of its own.
        statistics: "constant" takes gradients as if BatchNorm's statistics were no functions of the
            weights; None takes them through.
        gamma: "unperturbed" leaves γ out of the ascent, "fixed" out of the whole step; None treats
            it as every parameter.
    """

    input_noise: Annotated[float, Field(gt=0, le=1e15)] | None = None
    second_batch: Literal["other"] | None = None
    statistics: Literal["constant"] | None = None
    gamma: Literal["fixed", "unperturbed"] | None = None

    def __post_init__(self) -> None:
        if self.second_batch is not None and self.input_noise is not None:
            raise UserError(
                "input_noise is the same in both gradients of a step, and "
                f"second_batch={self.second_batch!r} takes them on two batches: drop one"
            )


# Fields of the groups by the names that a phase takes them under.
_FIRST_LAYER = {name: name for name in ("norm_rule", "bias_lr", "bias_weight_decay")}
_FIRST_LAYER["max_first_layer_norm"] = "max_norm"
_VARIATION = {name: name for name in ("input_noise", "second_batch", "statistics", "gamma")}


def _short_form(cls: type[T]) -> type[T]:
    """Let a phase take the options of its optimizer and its groups by name."""
    made: Any = cls
    validate, names = made.__init__, [field.name for field in dataclasses.fields(made)]
    allowed = {*names, *OPTIONS, *_FIRST_LAYER, *_VARIATION, "algorithm", "base"}

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        if len(args) > len(names):
            raise UserError(f"Phase takes {len(names)} fields: {', '.join(names)}")
        for name in given:
            if name == "adaptive":
                raise UserError(
                    "Phase has no field 'adaptive': adaptive SAM is the optimizer 'asam', as in "
                    "Phase('asam', lr=0.1, rho=0.5, epochs=100)"
                )
            if name not in allowed:
                hint, _, _ = nearest(name, allowed).partition("Allowed")
                hint = hint if hint.startswith("did") else ""
                raise UserError(
                    f"Phase has no field {name!r}: {hint}Allowed: {', '.join(names)}, and by their "
                    "names the options of the optimizer and the groups"
                )
        placed = dict(zip(names, args, strict=False))
        for name in placed.keys() & given.keys():
            values = f"{placed[name]!r} and {given[name]!r}"
            raise UserError(f"{name} is given twice, {values}: give it once")
        _require_once({**placed, **given})
        validate(self, **_grouped({**placed, **given}))

    made.__init__ = __init__
    return cls


@_short_form
@spec
class Phase:
    """One stretch of training with fixed hyper-parameters.

    `Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=100)` is short for
    `Phase(SAMSpec(rho=0.05), lr=0.01, …)`: options of the optimizer and of the groups may be given
    to the phase by name, here and in `changed`.

    With g(θ) the gradient of the batch's mean loss, one step is

        sgd, label_noise:  θ ← θ − lr (g(θ) + weight_decay θ)
        sam:               θ ← θ − lr (g(θ + rho g(θ)/‖g(θ)‖) + weight_decay θ)
        usam:              θ ← θ − lr (g(θ + rho g(θ)) + weight_decay θ)

    and the steps of the other optimizers are in `flatlab.optim`. A zero gradient means no ascent.
    Weight decay acts on every parameter and takes no part in the ascent. Momentum starts at zero in
    every phase. Batches follow `order`, cut in every epoch; the last may be smaller.

    Attributes:
        optimizer: Which algorithm takes the steps, with its options.
        epochs: Number of passes over the training set; with `until`, the most.
        batch_size: Examples a step; None is the full batch.
        order: None is a fresh permutation of the examples in every epoch; "fixed" is the first
            epoch's over and over; "replacement" draws every example anew.
        until: Training accuracy or loss to stop at; None trains all epochs.
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            optimizer: Any = None,
            lr: float = ...,
            epochs: int = ...,
            batch_size: int | None = None,
            **options: Any,
        ) -> None: ...

    optimizer: OptimizerSpec
    lr: Annotated[float, Field(gt=0, le=3e38)]
    epochs: Annotated[int, Field(gt=0, le=10**12)]
    batch_size: Annotated[int, Field(gt=0)] | None = None
    order: Order | None = None
    until: Until | None = None
    first_layer: FirstLayer = Field(default_factory=FirstLayer)
    variation: StepVariation = Field(default_factory=StepVariation)

    def __post_init__(self) -> None:
        ascends = self.algorithm in ("sam", "usam")
        second_batch, gamma = self.variation.second_batch, self.variation.gamma
        for name, value in (("second_batch", second_batch), ("gamma", gamma)):
            if value in ("other", "unperturbed") and not ascends:
                raise UserError(
                    f"{name}={value!r} is for the two gradients of 'sam' and 'usam'; "
                    f"{self.algorithm!r} has one: drop it or change the optimizer"
                )
        if second_batch is not None and self.batch_size is None:
            raise UserError(
                f"second_batch={second_batch!r} is another part of the examples, and the full "
                "batch is all of them: give a batch_size or drop it"
            )
        both = [("", self.lr, self.weight_decay), ("the bias's ", *self.of_bias)]
        for whose, lr, decay in both:
            if lr * decay > 1 - 1e-6:  # float32 would round 1 − lr·weight_decay to 0
                raise UserError(
                    f"{whose}lr * weight_decay must be <= 1 - 1e-6 (each step multiplies θ by 1 − "
                    f"lr·weight_decay), got {lr:g} * {decay:g}"
                )

    @property
    def algorithm(self) -> str:
        """Name of the optimizer."""
        return self.optimizer.name

    @property
    def rho(self) -> float:
        """Ascent radius; 0 for optimizers without an ascent."""
        return getattr(self.optimizer, "rho", 0.0)

    @property
    def noise(self) -> float:
        """Amplitude of the label noise."""
        noisy = self.optimizer.label_noise
        return noisy.noise if noisy else 0.0

    @property
    def weight_decay(self) -> float:
        """Coefficient λ of λθ in the gradient, i.e. (λ/2)‖θ‖² in the loss."""
        return self.optimizer.stepping.weight_decay

    @property
    def momentum(self) -> float | None:
        """Momentum of SGD; None is none."""
        return self.optimizer.stepping.momentum or None

    @property
    def of_bias(self) -> tuple[float, float]:
        """Learning rate and weight decay of the first layer's bias."""
        lr, decay = self.first_layer.bias_lr, self.first_layer.bias_weight_decay
        return self.lr if lr is None else lr, self.weight_decay if decay is None else decay

    def steps(self, n: int, epochs: int | None = None) -> int:
        """Return the number of steps of some epochs, by default all, on n examples.

        >>> Phase("sgd", lr=0.1, epochs=3, batch_size=4).steps(10)
        9
        """
        n = whole_number("n", n, least=1)
        size = self.batch_size or n
        count = self.epochs if epochs is None else whole_number("epochs", epochs, least=0)
        return count * -(-n // size)

    def changed(self, **options: Any) -> Phase:
        """Return the phase with other values of its fields, or of options by their names.

        >>> Phase("sam", lr=0.1, rho=0.5, epochs=1).changed(rho=0.1, epochs=2).rho
        0.1
        """
        now = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Phase(**_grouped({**now, **options}))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; fields at their defaults are left out."""
        return {"optimizer": self.optimizer.to_dict(), **to_dict(self, leave="optimizer")}


_GROUPS: dict[str, tuple[dict[str, str], Any]] = {
    "first_layer": (_FIRST_LAYER, FirstLayer),
    "variation": (_VARIATION, StepVariation),
}


def _require_once(given: Mapping[str, Any]) -> None:
    """Refuse an option that is given by its name and in its group or its optimizer, too."""
    for group, (names, cls) in _GROUPS.items():
        now = given.get(group)
        inside: Any = to_dict(now) if isinstance(now, cls) else now
        for name in names if isinstance(inside, Mapping) else ():
            if name in given and names[name] in inside:
                values = f"{inside[names[name]]!r} and {given[name]!r}"
                raise UserError(
                    f"{name} is given twice, {values}, once as {group}.{names[name]}: give it once"
                )
    if isinstance(optimizer := given.get("optimizer"), OptimizerSpec):
        require_once(optimizer, given)
        require_once(optimizer.stepping, given)


def _grouped(given: Mapping[str, Any]) -> dict[str, Any]:
    """Put options that a phase was given by name into its optimizer and its groups."""
    fields = dict(given)
    named = fields.pop("algorithm", None)
    optimizer = fields.get("optimizer", named)
    options = {name: fields.pop(name) for name in list(fields) if name in OPTIONS | {"base"}}
    if optimizer is None:
        raise UserError("Phase needs optimizer")
    if named is not None and isinstance(fields.get("optimizer"), str | Mapping):
        raise UserError(f"two optimizers are given, {optimizer!r} and {named!r}: give one")
    if named is not None and optimizer is not named:  # another algorithm, options kept
        kept = {k: v for k, v in optimizer_of(optimizer, {}).to_dict().items() if k != "name"}
        base = kept.pop("base", {})
        kept |= {k: v for k, v in base.items() if k != "name"}
        options = {**kept, **options}
        optimizer = named
    fields["optimizer"] = optimizer_of(optimizer, options)
    for group, (names, cls) in _GROUPS.items():
        changes = {names[name]: fields.pop(name) for name in names if name in fields}
        now: Any = fields.get(group) or cls()
        now = from_dict(cls, now) if isinstance(now, Mapping) else now
        right = isinstance(now, cls)  # anything else is refused with the other fields
        fields[group] = dataclasses.replace(now, **changes) if right and changes else now
    if isinstance(fields.get("until"), Mapping):
        fields["until"] = from_dict(Until, fields["until"])
    return fields


@spec
class LogGrid:
    """At which epochs a run is measured: log-spaced and regular ones together.

    Attributes:
        per_decade: Log-spaced points in each factor of ten.
        regular: Evenly spaced points over the whole run.
    """

    per_decade: Annotated[int, Field(ge=0, le=1000)] = 10
    regular: Annotated[int, Field(ge=0, le=100_000)] = 40

    def epochs(self, schedule: tuple[Phase, ...]) -> list[int]:
        """Return the epochs to log, from 0 to the last, ends of phases included.

        >>> LogGrid(per_decade=1, regular=2).epochs((Phase("sgd", lr=0.1, epochs=50),))
        [0, 1, 10, 25, 50]
        """
        if not isinstance(schedule, tuple | list) or not all(
            isinstance(phase, Phase) for phase in schedule
        ):
            raise UserError(f"schedule must be a list of phases, got {shown(schedule)}")
        total, points, end = sum(phase.epochs for phase in schedule), {0}, 0
        for phase in schedule:
            end += phase.epochs
            points.add(end)
        points |= {round(total * k / self.regular) for k in range(self.regular)}
        k = 0
        while self.per_decade and round(10 ** (k / self.per_decade)) < total:
            points.add(round(10 ** (k / self.per_decade)))
            k += 1
        return sorted(points)
