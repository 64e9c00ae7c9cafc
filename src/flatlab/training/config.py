"""A run's configuration: everything that decides its bits, as one value."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..errors import UserError, unknown
from ..losses import Loss, as_loss
from ..models import MODELS, Architecture
from ..specs import digest, from_dict, to_dict
from .schedule import LogGrid, Phase

Dtype = Literal["float32", "float64"]
_DTYPES = ("float32", "float64")
STARTS = ("run", "construction", "flattest")


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Architecture, data (by its spec), loss, schedule, seed, dtype and log grid.

    `start` says where the parameters come from if they are not drawn: {"run": directory, "sha256":
    their digest} for those of another run, {"construction": name, …} for a construction of theory,
    {"flattest": family, …} for a minimiser found directly. With a start the schedule may be empty.
    """

    arch: Architecture
    data: Mapping[str, Any]
    schedule: tuple[Phase, ...]
    loss: Loss = dataclasses.field(default_factory=Loss)
    seed: int = 0
    dtype: Dtype = "float32"
    log: LogGrid = dataclasses.field(default_factory=LogGrid)
    start: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.arch, tuple(MODELS.values())):
            kinds = " or ".join(kind.__name__ for kind in MODELS.values())
            raise UserError(f"arch must be a {kinds}, got {self.arch!r}")
        phases = self.schedule if isinstance(self.schedule, tuple) else ()
        bad = not isinstance(self.schedule, tuple) or (not phases and self.start is None)
        if bad or not all(isinstance(phase, Phase) for phase in phases):
            raise UserError(f"schedule must be a non-empty list of Phase, got {self.schedule!r}")
        for phase in phases:
            self._check_phase(phase)
        if self.dtype not in _DTYPES:
            raise UserError(f"dtype must be {' or '.join(_DTYPES)}, got {self.dtype!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise UserError(f"seed must be an integer >= 0, got {self.seed!r}")
        if self.start is not None and not (
            isinstance(self.start, Mapping) and len(set(STARTS) & set(self.start)) == 1
        ):
            raise UserError(f"start must have one of {', '.join(STARTS)}, got {self.start!r}")

    def _check_phase(self, phase: Phase) -> None:
        """Refuse what a phase says of a part that the network has not."""
        parts, norm = self.arch.shapes(1), getattr(self.arch, "norm", None)
        needs = (
            (phase.bias_apart, "b1" in parts, "bias_lr and bias_weight_decay need", "a bias"),
            (phase.norm_rule == "each", "b1" in parts, "norm_rule='each' needs", "a bias"),
            (phase.gamma is not None, "gamma" in parts, f"gamma={phase.gamma!r} needs", "a γ"),
            (
                phase.statistics is not None,
                norm in ("batch", "standard_batch"),
                f"statistics={phase.statistics!r} needs",
                "BatchNorm",
            ),
        )
        n = self.data.get("n") if isinstance(self.data, Mapping) else None
        if phase.second_batch and isinstance(n, int) and (phase.batch_size or n) >= n:
            raise UserError(
                f"second_batch={phase.second_batch!r} is another part of the {n} examples, and "
                f"batch_size={phase.batch_size} takes all of them: give a smaller one or drop it"
            )
        for asked, there, field_needs, part in needs:
            if asked and not there:
                raise UserError(
                    f"{field_needs} a network with {part}, which this one has not: leave it out of "
                    f"the phase or change the network, {self.arch!r}"
                )

    @property
    def epochs(self) -> int:
        """Total epochs over all phases."""
        return sum(phase.epochs for phase in self.schedule)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as they stand in config.toml."""
        kind = next(name for name, cls in MODELS.items() if isinstance(self.arch, cls))
        return {
            "seed": self.seed,
            "dtype": self.dtype,
            "arch": {"kind": kind, **to_dict(self.arch)},
            "data": dict(self.data),
            "loss": to_dict(self.loss),
            "log": to_dict(self.log),
            "schedule": [to_dict(phase) for phase in self.schedule],
            **({} if self.start is None else {"start": dict(self.start)}),
        }

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
        values["arch"] = _architecture(fields["arch"])
        values["schedule"] = _schedule(fields["schedule"])
        for name, kind in (("loss", Loss), ("log", LogGrid)):
            if name in fields:
                if name == "loss" and isinstance(fields[name], str):
                    values[name] = as_loss(fields[name])
                    continue
                values[name] = from_dict(kind, fields[name])
        if not isinstance(fields["data"], Mapping):
            raise UserError(f"data must be a table with a name, got {fields['data']!r}")
        return cls(**values)

    def check_size(self, d: int) -> None:
        """Refuse a network on d inputs that this machine cannot hold."""
        shapes = self.arch.shapes(d).values()
        parameters = sum(math.prod(shape) for shape in shapes)
        # The draw of the initial weights in float64 and the trainer's own copy of them.
        needed, there = 16 * parameters, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > there:
            raise UserError(
                f"a network of {float(parameters):.3g} parameters needs {needed / 2**30:.3g} GiB "
                f"and this machine has {there / 2**30:.3g}: choose a smaller width or depth"
            )

    def digest(self) -> str:
        """Return the hash that names the run's directory."""
        return digest(self.to_dict())


def _architecture(fields: Any) -> Architecture:
    if not isinstance(fields, Mapping):
        raise UserError(f"arch must be a table with a kind, got {fields!r}")
    rest = dict(fields)
    kind = rest.pop("kind", "two_layer")
    if not isinstance(kind, str) or kind not in MODELS:
        raise unknown("architecture", str(kind), MODELS)
    return from_dict(MODELS[kind], rest)


def _schedule(phases: Any) -> tuple[Phase, ...]:
    if isinstance(phases, str) or not isinstance(phases, Sequence):
        raise UserError(f"schedule must be a list of phases, got {phases!r}")
    return tuple(phase if isinstance(phase, Phase) else from_dict(Phase, phase) for phase in phases)
