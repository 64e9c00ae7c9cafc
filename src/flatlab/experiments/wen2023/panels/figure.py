"""What a figure is: parts, each an architecture and rows of Table 2, over common data and loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from ....data import Dataset, xor
from ....losses import Loss
from ....models import Architecture
from ....specs import spec
from ....theory.table2 import TABLE2, Row
from ....training.config import Dtype, RunConfig
from ....training.run import Run
from ....training.schedule import Algorithm, Phase
from ...contract import Experiment, Findings, Planned, Verdict
from ...evidence import diverged
from .evidence import Evidence, collect
from .pictures import picture, table

Tables = Mapping[str, list[dict[str, Any]]]
Count = Annotated[int, Field(gt=0)]
Epochs = Annotated[int, Field(ge=0)]  # of a later phase; 0 leaves it out
FULL_BATCH = 100  # the paper's n, which Table 2 gives as the batch size of gradient descent
ORDINALS = ("", "_second", "_third")  # of a part's phases, in the names of settings


@spec
class Sizes:
    """What the settings of all figures share. Defaults are the paper's own: it shows one run."""

    seeds: Annotated[int, Field(gt=0, le=1000)] = 1
    width: Count = 500
    d: Annotated[int, Field(ge=2)] = 30
    n: Count = 100
    n_test: Count = 10_000
    dtype: Dtype = "float32"


def phase_of(row: Row) -> Phase:
    """Return a row of Table 2 as a phase of a schedule."""
    return Phase(
        "sam" if row.rho else "sgd",
        lr=row.lr,
        epochs=row.epochs,
        rho=row.rho,
        batch_size=row.batch_size,
        weight_decay=row.weight_decay,
    )


@dataclasses.dataclass(frozen=True)
class Part:
    """One panel of a figure of the paper.

    Attributes:
        key: "gd" or "sam", or what sets the parts apart. The settings hold its phases' epochs as
            key_epochs, key_epochs_second and key_epochs_third.
        panel: Its name in Table 2, as "4b".
        label: Its name in tables and pictures.
        arch: Settings → architecture.
        floor: (data, settings) → the trace to compare with, or None where none is known.
        reference: What that trace is, in a few words.
        max_first_layer_norm: As in `Phase`.
        algorithm: Takes the place of the rows' own, if given, in what is ours and not the paper's.
        last_rho: The setting that takes the place of the last row's radius, in the same way.
    """

    key: str
    panel: str
    label: str
    arch: Callable[[Any], Architecture]
    floor: Callable[[Dataset, Any], float] | None = None
    reference: str = "floor"
    max_first_layer_norm: float | None = None
    algorithm: Algorithm | None = None
    last_rho: str | None = None

    @property
    def ours(self) -> bool:
        """Whether the paper has no such run."""
        return self.algorithm is not None or self.last_rho is not None

    def schedule(self, settings: Any) -> tuple[Phase, ...]:
        """Return its rows of Table 2 with the epochs of the settings."""
        rows = [entry for entry in TABLE2 if entry.figure == self.panel]
        phases = []
        for entry, ordinal in zip(rows, ORDINALS, strict=False):
            epochs = getattr(settings, f"{self.key}_epochs{ordinal}")
            if epochs:
                changes: dict[str, Any] = {
                    "epochs": epochs,
                    "max_first_layer_norm": self.max_first_layer_norm,
                }
                if entry.batch_size == FULL_BATCH:
                    changes["batch_size"] = None
                if self.algorithm:
                    changes["algorithm"] = self.algorithm
                if self.last_rho and entry is rows[-1]:
                    changes["rho"] = getattr(settings, self.last_rho)
                phases.append(dataclasses.replace(phase_of(entry), **changes))
        return tuple(phases)


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of the paper.

    Attributes:
        number: Its number.
        title: The picture's title.
        claim: What it claims, in one sentence.
        parts: Its panels.
        presets: Name → settings, whose class extends `Sizes`.
        verdicts: What the paper says of it, judged.
        data: (d, n, seed, n_test) → data set.
        loss: The training loss.
        score: The column that tells generalisation: "test_error" or "test_loss".
        tables: Evidence → tables beside that of the phases' ends, by name.
        finding: Evidence → what came out in plain language, made from the numbers.
        scores: Whether the picture has a second row, of the memorisation and the feature score.
    """

    number: int
    title: str
    claim: str
    parts: tuple[Part, ...]
    presets: Mapping[str, Sizes]
    verdicts: Callable[[Evidence], list[Verdict]]
    data: Callable[..., Dataset] = xor
    loss: Loss = dataclasses.field(default_factory=Loss)
    score: str = "test_error"
    tables: Callable[[Evidence], Tables] = lambda found: {}
    finding: Callable[[Evidence], str] = lambda found: ""
    scores: bool = False

    def data_of(self, seed: int, s: Sizes) -> Dataset:
        """Return the training and test set of a seed."""
        return self.data(d=s.d, n=s.n, seed=seed, n_test=s.n_test)

    def run_name(self, key: str, seed: int) -> str:
        """Return a run's name."""
        return f"fig{self.number}-{key}-seed{seed}"

    def plan(self, s: Sizes) -> list[Planned]:
        """Return all runs, those with most updates first."""
        planned = [
            Planned(
                self.run_name(part.key, seed),
                RunConfig(
                    arch=part.arch(s),
                    data=self.data_of(seed, s).spec,
                    schedule=part.schedule(s),
                    loss=self.loss,
                    seed=seed,
                    dtype=s.dtype,
                ),
                ours=part.ours,
            )
            for part in self.parts
            for seed in range(s.seeds)
        ]
        return sorted(planned, key=lambda p: -_updates(p.config, s.n))

    def analyse(self, s: Sizes, preset: str, runs: Mapping[str, Run]) -> Findings:
        """Turn runs into a table, a picture and the verdicts."""
        evidence = collect(self, s, preset, runs)
        return Findings(
            tuple(self.verdicts(evidence)),
            {f"fig{self.number}": table(evidence), **self.tables(evidence)},
            (picture(evidence),),
            diverged(runs),
            self.finding(evidence) if all(evidence.runs.values()) else "",
        )


def experiment(figure: Figure, module: str) -> Experiment:
    """Return a figure as an entry of the catalogue."""
    return Experiment(
        id=f"wen2023/fig{figure.number}",
        source="Wen, Li & Ma 2023",
        figure=f"Figure {figure.number}",
        claim=figure.claim,
        presets=figure.presets,
        plan=figure.plan,
        analyse=figure.analyse,
        module=module,
    )


def row(panel: str, position: int = 0) -> Row:
    """Return a row of Table 2: the panel's first, second or third.

    >>> row("4b", 1).epochs
    400000
    """
    return [entry for entry in TABLE2 if entry.figure == panel][position]


def _updates(config: RunConfig, n: int) -> int:
    return sum(phase.epochs * -(-n // (phase.batch_size or n)) for phase in config.schedule)
