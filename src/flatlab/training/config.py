"""A run's configuration: everything that decides its bits, as one value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from ..data.catalogue import identity, shape_of
from ..errors import UserError, unknown, whole
from ..losses import MSE, Loss, as_loss
from ..models import MODELS, Architecture
from ..outside.memory import require_memory
from ..specs import digest, from_dict, spec, to_dict
from .optimizers import with_zeros, without_zeros
from .schedule import FirstLayer, LogGrid, Phase

Dtype = Literal["float32", "float64"]
_DTYPES = ("float32", "float64")
STARTS = ("run", "construction", "flattest")


@spec
class Tracked:
    """A measure that a run takes at its log points, as a column of its history.

    Attributes:
        measure: Its name, with options after a colon, as "lambda_max:tolerance=0.01".
        mode: As for `flatlab.measure`: how normalisation layers behave while measuring.
        examples: How many training examples to measure on, evenly spaced; None takes all.
        batch_size: Size of the batches whose statistics BatchNorm takes in mode "train"; None is
            one batch of all examples.
        label: Name of the column; None takes the measure's, without its options.
    """

    measure: str
    mode: Literal["eval", "train", "recomputed"] = "eval"
    examples: Annotated[int, Field(gt=0)] | None = None
    label: str | None = None
    batch_size: Annotated[int, Field(gt=0)] | None = None

    def __post_init__(self) -> None:
        from ..measures.catalogue import named

        named(self.measure)

    @property
    def column(self) -> str:
        """Name of the column."""
        return self.label or self.measure.partition(":")[0]


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Architecture, data (by its spec), loss, schedule, seed, dtype, log grid, tracked measures.

    `start` says where the parameters come from if they are not drawn: {"run": directory, "sha256":
    their digest} for those of another run, {"construction": name, …} for a construction of theory,
    {"flattest": family, …} for a minimiser found directly. With a start the schedule may be empty.
    Threads, device and directories do not decide a run's bits and are not here.
    """

    arch: Architecture
    data: Mapping[str, Any]
    schedule: tuple[Phase, ...]
    loss: Loss = dataclasses.field(default_factory=MSE)
    seed: int = 0
    dtype: Dtype = "float32"
    log: LogGrid = dataclasses.field(default_factory=LogGrid)
    start: Mapping[str, Any] | None = None
    measures: tuple[Tracked, ...] = ()

    def __post_init__(self) -> None:
        if type(self.arch) not in MODELS.values():
            kinds = ", ".join(kind.__name__ for kind in MODELS.values())
            raise UserError(f"arch must be one of {kinds}, got {self.arch!r}")
        phases = self.schedule if isinstance(self.schedule, tuple) else ()
        bad = not isinstance(self.schedule, tuple) or (not phases and self.start is None)
        if bad or not all(isinstance(phase, Phase) for phase in phases):
            raise UserError(f"schedule must be a non-empty list of Phase, got {self.schedule!r}")
        for phase in phases:
            self._check_phase(phase)
        object.__setattr__(self, "dtype", _name_of(self.dtype))
        if self.dtype not in _DTYPES:
            raise UserError(f"dtype must be {' or '.join(_DTYPES)}, got {self.dtype!r}")
        object.__setattr__(self, "seed", whole(self.seed))
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise UserError(f"seed must be an integer >= 0, got {self.seed!r}")
        if self.start is not None and not (
            isinstance(self.start, Mapping) and len(set(STARTS) & set(self.start)) == 1
        ):
            raise UserError(f"start must have one of {', '.join(STARTS)}, got {self.start!r}")
        taken = {"epoch", "step", "train_loss", "train_error", "test_loss", "test_error"}
        if self.arch.chain:  # their histories have these from the engine
            taken |= {"trace", "trace_ggn", "memorisation", "features"}
        for tracked in self.measures:
            names = {tracked.column, f"{tracked.column}_stderr"}
            if both := sorted(names & taken):
                raise UserError(
                    f"the history has a column {both[0]!r} already: give the tracked measure "
                    f"{tracked.measure!r} another label"
                )
            taken |= names

    def _check_phase(self, phase: Phase) -> None:
        """Refuse what a phase says of a part that the network has not."""
        parts = self.arch.parts
        first, step = phase.first_layer, phase.variation
        needs = (
            (first != FirstLayer(), "first_layer", "first_layer needs", "a two-layer form"),
            (first.bias_apart, "bias", "bias_lr and bias_weight_decay need", "a bias"),
            (first.norm_rule == "each", "bias", "norm_rule='each' needs", "a bias"),
            (step.gamma, "gamma", f"gamma={step.gamma!r} needs", "a γ"),
            (step.statistics, "statistics", f"statistics={step.statistics!r} needs", "BatchNorm"),
        )
        for asked, needed, field_needs, part in needs:
            if asked and needed not in parts:
                raise UserError(
                    f"{field_needs} a network with {part}, which this one has not: leave it out of "
                    f"the phase or change the network, {self.arch!r}"
                )

    @property
    def epochs(self) -> int:
        """Total epochs over all phases; a phase with `until` may take fewer."""
        return sum(phase.epochs for phase in self.schedule)

    @property
    def shape(self) -> tuple[tuple[int, ...], int] | None:
        """Shape of an input and number of outputs; None if only the data can tell."""
        return shape_of(self.data)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as they stand in config.toml; defaults are left out."""
        found = {
            "seed": self.seed,
            "dtype": self.dtype,
            "arch": {"kind": self.arch.kind, **to_dict(self.arch)},
            "data": dict(self.data),
            "loss": {"name": self.loss.name, **to_dict(self.loss)},
            "schedule": [phase.to_dict() for phase in self.schedule],
        }
        if self.log != LogGrid():
            found["log"] = to_dict(self.log)
        if self.start is not None:
            found["start"] = dict(self.start)
        if self.measures:
            found["measures"] = [to_dict(tracked) for tracked in self.measures]
        return found

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RunConfig:
        """Read plain values; every mistake is a `UserError` naming the key."""
        allowed = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in allowed:
                raise unknown("key", name, allowed)
        for name in ("arch", "data", "schedule"):
            if name not in fields:
                raise UserError(f"a run needs {name!r}: give it as a table")
        values = dict(fields)
        for name, read in _READERS.items():
            if name in fields:
                values[name] = read(fields[name])
        if not isinstance(fields["data"], Mapping):
            raise UserError(f"data must be a table with a name, got {fields['data']!r}")
        return cls(**values)

    def check_size(self, shape: int | tuple[int, ...], outputs: int = 1) -> None:
        """Refuse a network on inputs of this shape whose parameters do not fit into memory."""
        parameters = self.arch.size((shape,) if isinstance(shape, int) else shape, outputs)
        if parameters is not None:
            require_room(parameters)

    def digest(self) -> str:
        """Return the hash that names the run's directory."""
        return config_digest(self.to_dict())


def _name_of(dtype: Any) -> Any:
    """Return the name of a dtype of numpy or torch; anything else stays as it is."""
    known = isinstance(dtype, np.dtype | type) or type(dtype).__module__ == "torch"
    return str(getattr(dtype, "__name__", dtype)).removeprefix("torch.") if known else dtype


def require_room(parameters: int) -> None:
    """Refuse a network whose parameters do not fit into memory."""
    # The draw of the initial weights in float64 and the trainer's own copy of them.
    what = f"a network of {float(min(parameters, 10**300)):.3g} parameters"
    require_memory(16 * parameters, what, "choose a smaller width or depth")


def config_digest(fields: Mapping[str, Any]) -> str:
    """Hash a stored configuration without its hints.

    The path of a data file or of a starting run is a hint, if the hash of its content is there: so
    a run has the same name on every machine.
    """
    known = {**_optimizers(fields, without_zeros), "data": identity(fields["data"])}
    if "sha256" in (start := dict(fields.get("start") or {})):
        start.pop("run", None)
        known["start"] = start
    return digest(known)


def _optimizers(fields: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a stored configuration with its optimizers changed; other phases stay as they are."""
    phases = fields.get("schedule")
    if not isinstance(phases, list | tuple):
        return dict(fields)
    made = [
        {**phase, "optimizer": change(phase["optimizer"])}
        if isinstance(phase, Mapping) and isinstance(phase.get("optimizer"), Mapping)
        else phase
        for phase in phases
    ]
    return {**fields, "schedule": made}


def stored(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored configuration; options that older versions omitted at 0 are put back."""
    return _optimizers(fields, with_zeros)


def upgraded(fields: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the configuration of an older format as this one stores it.

    Format 1 wrote all fields of a phase side by side, and every option of every loss.
    """
    if number >= 2:
        return dict(fields)
    values = dict(fields)
    if isinstance(values.get("loss"), Mapping):
        options = {"logistic": ("smoothing",), "truncated_mse": ("cutoff",)}
        kept = ("name", *options.get(str(values["loss"].get("name")), ()))
        values["loss"] = {k: v for k, v in values["loss"].items() if k in kept}
    return RunConfig.from_dict(values).to_dict()


def tracked(measures: Any) -> tuple[Tracked, ...]:
    """Read tracked measures: names, tables or `Tracked`, one or a list of them."""
    alone = isinstance(measures, str | Mapping | Tracked)
    if not alone and not isinstance(measures, Sequence):
        raise UserError(f"measures must be names or tables of a measure, got {measures!r}")
    found = []
    for item in [measures] if alone else measures:
        if isinstance(item, str):
            item = Tracked(item)
        elif isinstance(item, Mapping):
            item = from_dict(Tracked, item)
        if not isinstance(item, Tracked):
            raise UserError(f"a tracked measure is a name, a table or a Tracked, got {item!r}")
        found.append(item)
    return tuple(found)


def _architecture(fields: Any) -> Architecture:
    if not isinstance(fields, Mapping):
        raise UserError(f"arch must be a table with a kind, got {fields!r}")
    rest = dict(fields)
    kind = rest.pop("kind", "two_layer")
    if not isinstance(kind, str) or kind not in MODELS:
        raise unknown("architecture", str(kind), MODELS)
    made: Architecture = from_dict(MODELS[kind], rest)
    return made


def _schedule(phases: Any) -> tuple[Phase, ...]:
    if isinstance(phases, str) or not isinstance(phases, Sequence):
        raise UserError(f"schedule must be a list of phases, got {phases!r}")
    made = []
    for phase in phases:
        if not isinstance(phase, Phase | Mapping):
            raise UserError(f"Phase must be a table of fields, got {phase!r}")
        made.append(phase if isinstance(phase, Phase) else Phase(**phase))
    return tuple(made)


_READERS: dict[str, Callable[[Any], Any]] = {
    "arch": _architecture,
    "schedule": _schedule,
    "loss": as_loss,
    "log": lambda fields: from_dict(LogGrid, fields),
    "measures": tracked,
}
