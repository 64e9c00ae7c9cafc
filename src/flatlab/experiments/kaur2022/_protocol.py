"""How Kaur, Cohen & Lipton train and measure, the same for all figures, so that runs are shared.

As their code has it: plain SGD or SAM on SGD, no momentum, no weight decay, a constant learning
rate, mean cross-entropy, until the training accuracy is 99 %, looked at once an epoch. λ_max of the
training loss is measured on 1,000 evenly spaced training examples. BatchNorm then takes the
statistics of batches of min(B, 1000) examples; dropout is off.

What is chosen here:
- Neither paper nor code states the learning rates and radii in numbers; those of the figures are in
  their files.
- The full training set is evaluated once an epoch, and at least ten steps apart.
- A run that misses 99 % within its epochs is drawn and counted in every table. A claim is judged
  without the settings in which a run missed, and says so.
- A seed decides initial weights, sample order and dropout; the images are the same for all seeds.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field

from ...data.catalogue import CATALOGUE, make
from ...errors import UserError, unknown
from ...losses import CrossEntropy
from ...models import MODELS, Architecture
from ...specs import from_dict, parse_spec, spec
from ...training.config import Dtype, RunConfig, Tracked
from ...training.schedule import LogGrid, Phase, Until
from ..arms import Arm
from ..contract import Computation
from ..sizes import Count, Positive, Seeds

Rates = Annotated[tuple[Positive, ...], Field(min_length=2, strict=False)]
Counts = Annotated[tuple[Count, ...], Field(min_length=2, strict=False)]
Fractions = Annotated[
    tuple[Annotated[float, Field(ge=0, lt=1)], ...], Field(min_length=2, strict=False)
]
Radii = Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=2, strict=False)]

LOG = LogGrid(per_decade=4, regular=0)
STEPS_APART = 10  # between two looks at the training accuracy, at least


@spec
class Protocol:
    """Settings of every figure; defaults are the paper's, or chosen where it states none.

    `data` and `arch` are written as for `flatlab train`, for example "fashion_mnist" and
    "cnn:channels=[16, 32]", or "module:factory=mine.py:net" for a network of your own.
    """

    seeds: Seeds = 5
    first_seed: Annotated[int, Field(ge=0)] = 0
    data: str = "cifar10"
    arch: str = "vgg11"
    n: Count = 50_000
    n_test: Count = 10_000
    size: Count | None = None  # side of an image after pooling; None is as in the file
    accuracy: Annotated[float, Field(gt=0, le=1)] = 0.99  # of training, to stop at
    measured: Count = 1000  # training examples that λ_max is measured on
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 0.01  # of λ_max, relative
    margin: Positive = 1.0  # points of test accuracy that count as a difference
    dtype: Dtype = "float32"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One setting of a grid; each seed has one run of it."""

    batch: int
    lr: float
    rho: float = 0.0
    dropout: float | None = None  # None leaves the architecture as it is
    batch_norm: bool | None = None

    @property
    def key(self) -> str:
        """Its key among the arms.

        >>> Cell(20, 0.01, rho=0.05).key
        'b20-lr0.01-rho0.05'
        """
        parts = [f"b{self.batch}", f"lr{self.lr:g}"]
        parts += [f"rho{self.rho:g}"] if self.rho else []
        parts += [f"p{self.dropout:g}"] if self.dropout is not None else []
        parts += ["bn"] if self.batch_norm else []
        return "-".join(parts)

    @property
    def label(self) -> str:
        """Its name in words."""
        parts = [f"batch {self.batch:,}", f"η = {self.lr:g}"]
        parts += [f"ρ = {self.rho:g}"] if self.rho else []
        parts += [f"p = {self.dropout:g}"] if self.dropout is not None else []
        parts += ["BatchNorm"] if self.batch_norm else []
        return ", ".join(parts)


def architecture(text: str, **options: Any) -> Architecture:
    """Return an architecture from its text, with options that replace its own.

    A network of the user's own gets them as arguments of its factory.

    >>> architecture("cnn:channels=[8]", batch_norm=True).describe()
    'cnn:channels=[8],batch_norm=true'
    """
    kind, fields = parse_spec(text)
    if kind not in MODELS:
        raise unknown("architecture", kind, MODELS)
    if kind == "module":
        fields["options"] = {**fields.get("options", {}), **options}
        options = {}
    made: Architecture = from_dict(MODELS[kind], fields)
    names = {field.name for field in dataclasses.fields(made)}  # type: ignore[arg-type]
    for name in options:
        if name not in names:
            raise UserError(
                f"this figure needs a network with {name}, which {kind} has not: choose mlp, cnn, "
                f"vgg11, or a module whose factory takes {name}"
            )
    return dataclasses.replace(made, **options)  # type: ignore[type-var]


def data_of(s: Any) -> dict[str, Any]:
    """Return the spec of the data, with the digest of its content if the files are here."""
    name, options = parse_spec(s.data)
    if name not in CATALOGUE:
        raise unknown("data set", name, CATALOGUE)
    takes = inspect.signature(CATALOGUE[name]).parameters
    sizes = {field: getattr(s, field) for field in ("n", "n_test", "size") if field in takes}
    asked = {k: v for k, v in sizes.items() if v is not None}
    fields = {"name": name, **asked, **options}
    return dict(_known(json.dumps(fields), os.environ.get("FLATLAB_DATA", "")))


@functools.cache
def _known(text: str, folder: str) -> Mapping[str, Any]:
    fields: dict[str, Any] = json.loads(text)
    try:
        return make(fields).spec
    except UserError:  # `require` tells; a plan can be made without the files
        return fields


def require(s: Any) -> None:
    """Raise an error if the data is not here or has not enough images."""
    fields = data_of(s)
    if "sha256" not in fields:
        make(fields)


def between(pairs: Iterable[tuple[float, float]], x: float) -> float:
    """Return y at x on the line through (x, y) pairs on logarithmic axes; constant beyond them.

    >>> round(between([(10, 100), (1000, 1)], 100), 9)
    10.0
    """
    (x0, y0), *rest = sorted(pairs)
    if not rest or x <= x0:
        return y0
    x1, y1 = rest[-1]
    share = min(1.0, math.log(x / x0) / math.log(x1 / x0)) if x1 > x0 else 0.0
    return float(math.exp((1 - share) * math.log(y0) + share * math.log(y1)))


def epochs_of(s: Any, batch: int) -> int:
    """Return the most epochs of a run: between those of the small and of the large batch."""
    pairs = [
        (getattr(s, size), getattr(s, epochs))
        for size, epochs in (("small", "epochs"), ("large", "large_epochs"))
        if hasattr(s, size) and hasattr(s, epochs)
    ]
    return math.ceil(round(between(pairs or [(batch, s.epochs)], batch), 6))


def rates_of(s: Any, batch: int) -> tuple[float, ...]:
    """Return the learning rates of a batch size: between those of the small and the large one."""
    pairs = zip(s.small_rates, s.large_rates, strict=False)
    found = (between([(s.small, low), (s.large, high)], batch) for low, high in pairs)
    return tuple(float(f"{rate:.3g}") for rate in found)


def phase_of(s: Any, cell: Cell, until: Until | None = None) -> Phase:
    """Return the training of a cell; by default until the training accuracy of the protocol."""
    if cell.batch > s.n:
        raise UserError(f"n must be >= {cell.batch}, the largest batch size, got {s.n}")
    every = max(1, round(STEPS_APART * cell.batch / s.n))
    until = until or Until(accuracy=s.accuracy, every=every)
    options: dict[str, Any] = {"rho": cell.rho} if cell.rho else {}
    optimizer = "sam" if cell.rho else "sgd"
    epochs = epochs_of(s, cell.batch)
    return Phase(
        optimizer, lr=cell.lr, epochs=epochs, batch_size=cell.batch, until=until, **options
    )


def network_of(s: Any, cell: Cell) -> Architecture:
    """Return the architecture of a cell."""
    changes = {"dropout": cell.dropout, "batch_norm": cell.batch_norm}
    return architecture(s.arch, **{k: v for k, v in changes.items() if v is not None})


def tracked(s: Any, cell: Cell) -> tuple[Tracked, ...]:
    """Return λ_max as the authors measure it and, with BatchNorm, with running statistics too."""
    measure = f"lambda_max:tolerance={s.tolerance:g}"
    if not network_of(s, cell).normalises:
        return (Tracked(measure, examples=s.measured),)
    size = min(cell.batch, s.measured)
    return (
        Tracked(measure, mode="train", examples=s.measured, batch_size=size),
        Tracked(measure, examples=s.measured, label="lambda_max_eval"),
    )


def arm_of(s: Any, cell: Cell, then: Mapping[str, Computation] | None = None) -> Arm:
    """Return a cell as an arm of a comparison."""
    network_of(s, cell)  # a mistake in `arch` is told before anything runs

    def config(seed: int) -> RunConfig:
        return RunConfig(
            arch=network_of(s, cell),
            data=data_of(s),
            schedule=(phase_of(s, cell),),
            loss=CrossEntropy(),
            seed=seed,
            dtype=s.dtype,
            log=LOG,
            measures=tracked(s, cell),
        )

    return Arm(cell.key, cell.label, config, then=then or {})


def trained_on(s: Any, cell: Cell, loss: float) -> Arm:
    """Return the arm that trains a cell's runs on, from 99 % to a training loss."""
    first = arm_of(s, cell)
    every = max(1, round(STEPS_APART * cell.batch / s.n))

    def config(seed: int) -> RunConfig:
        phase = phase_of(s, cell, Until(loss=loss, every=every))
        return dataclasses.replace(first.config(seed), schedule=(phase,))

    label = f"{cell.label}, on to a loss of {loss:g}"
    return Arm(f"{cell.key}-on", label, config, after=cell.key, ours=True)
