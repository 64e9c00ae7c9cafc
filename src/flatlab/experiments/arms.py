"""Comparisons: the same question put to several arms, each with some seeds.

An arm is a network, a data set and a schedule; a derived arm is computed from another arm's runs.
Each comparison has its own file, which lists its arms and its verdicts. This module and `showing`
do the common work: the plan, the runs sorted by arm and seed, the table and the picture of final
values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..data import Dataset
from ..data.catalogue import make
from ..jobs.costs import CostModel
from ..losses import Loss
from ..models import Architecture
from ..plots import Plot
from ..training.config import Dtype, RunConfig
from ..training.run import Run
from ..training.schedule import LogGrid, Phase
from . import showing
from .compared import Compared, lost
from .contract import (
    UNDECIDED,
    Computation,
    Experiment,
    Findings,
    Fit,
    Planned,
    Verdict,
    seeds_in,
    too_small,
)
from .tuning import tuned

Tables = Mapping[str, list[dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Arm:
    """One line of a comparison: its key in files and code, its label in tables and pictures."""

    key: str
    label: str
    config: Callable[[int], RunConfig]  # of a seed
    floor: Callable[[Dataset], float] | None = None  # the trace to compare with, if one is known
    role: str = ""  # picks its colour; by default the key
    reference: str = "floor"  # what the floor is, in a few words
    panel: str = ""  # the source's name for it, for example "4b"
    after: str = ""  # the key of the arm from whose ends its runs train on
    # Label → what is computed from the end of each run; the name and `after` are filled in.
    then: Mapping[str, Computation] = dataclasses.field(default_factory=dict)
    ours: bool = False  # it is ours, and not in the source
    generalises: bool | None = None  # the source's answer; None if that is not asked


@dataclasses.dataclass(frozen=True)
class Derived:
    """A line of a comparison computed from an earlier arm's runs, for example by early stopping."""

    key: str
    label: str
    of: str  # the key of the arm whose runs and floor it uses
    change: Callable[[Run], Run]
    role: str = ""


AnyArm = Arm | Derived


@dataclasses.dataclass(frozen=True)
class Comparison:
    """An experiment made of arms.

    Attributes:
        title: The picture's title.
        presets: Name → settings, which have `seeds`.
        arms: Settings → arms; a derived arm comes after the arm it is derived from.
        verdicts: Runs → verdicts.
        finding: Runs → the result in plain language, written from the numbers.
        tables: Runs → tables by name; by default one row for each arm.
        plots: Runs → pictures; by default one of the final values.
        prefix: Start of the names of the runs; by default the name and a dash.
        notes: Runs → remarks; by default one for each run that diverged or missed its target.
        undecided: Presets for a first look.
        require: Raises a `UserError` if the settings cannot run here.
    """

    id: str
    source: str
    figure: str
    title: str
    claim: str
    presets: Mapping[str, Any]
    arms: Callable[[Any], Sequence[AnyArm]]
    verdicts: Callable[[Compared], Sequence[Verdict]]
    finding: Callable[[Compared], str] = lambda found: ""
    tables: Callable[[Compared], Tables] = showing.tables
    plots: Callable[[Compared], tuple[Plot, ...]] = showing.plots
    prefix: str | None = None
    notes: Callable[[Compared], tuple[str, ...]] | None = None
    undecided: tuple[str, ...] = UNDECIDED
    require: Callable[[Any], None] = lambda settings: None

    @property
    def name(self) -> str:
        """The part of the id after the slash."""
        return self.id.partition("/")[2]

    def run_name(self, key: str, seed: int) -> str:
        """Return a run's name."""
        prefix = f"{self.name}-" if self.prefix is None else self.prefix
        return f"{prefix}{key}-seed{seed}"

    def plan(self, s: Any) -> list[Planned | Computation]:
        """Return all runs, the longest first, and what is computed from their ends."""
        arms = [arm for arm in self.arms(s) if isinstance(arm, Arm)]
        pairs = [(arm, seed) for arm in arms for seed in seeds_in(s)]
        planned = [
            Planned(
                self.run_name(arm.key, seed),
                arm.config(seed),
                ours=arm.ours,
                after=self.run_name(arm.after, seed) if arm.after else "",
            )
            for arm, seed in pairs
        ]
        costs = CostModel()
        computed = [
            dataclasses.replace(one, name=f"{run}-{label}", after=run)
            for arm, seed in pairs
            for run in (self.run_name(arm.key, seed),)
            for label, one in arm.then.items()
        ]
        return [*sorted(planned, key=lambda p: -costs.seconds(p.config)), *computed]

    def collect(self, s: Any, preset: str, runs: Mapping[str, Any]) -> Compared:
        """Sort the runs by arm and seed; settings that are too small decide nothing."""
        arms = {arm.key: arm for arm in self.arms(s)}
        found: dict[str, dict[int, Run]] = {}
        floors: dict[str, dict[int, float]] = {}
        computed: dict[tuple[str, str], dict[int, Any]] = {}
        for key, arm in arms.items():
            if isinstance(arm, Derived):
                found[key] = {seed: arm.change(run) for seed, run in found[arm.of].items()}
                floors[key] = floors[arm.of]
                continue
            names = {seed: self.run_name(key, seed) for seed in seeds_in(s)}
            for label in arm.then:
                ends = {seed: runs.get(f"{name}-{label}") for seed, name in names.items()}
                computed[key, label] = {seed: end.result for seed, end in ends.items() if end}
            found[key] = {seed: runs[name] for seed, name in names.items() if name in runs}
            floors[key] = {}
            if arm.floor:
                floors[key] = {k: arm.floor(training_set(arm.config(k))) for k in names}
        decisive = Fit(too_small(s, preset, self.presets, undecided=self.undecided))
        return Compared(self, s, arms, found, floors, decisive, computed)

    def analyse(self, s: Any, preset: str, runs: Mapping[str, Any]) -> Findings:
        """Turn runs into tables, pictures, verdicts and a finding."""
        found = self.collect(s, preset, runs)
        return Findings(
            tuple(self.verdicts(found)),
            self.tables(found),
            self.plots(found),
            self.notes(found) if self.notes else _notes(runs),
            self.finding(found) if all(found.runs.values()) else "",
        )

    def experiment(self, module: str) -> Experiment:
        """Return it as an entry of the catalogue."""
        named = (self.id, self.source, self.figure, self.claim)
        more: Any = {"undecided": self.undecided, "require": self.require}
        return Experiment(*named, self.presets, self.plan, self.analyse, module, **more)


def _notes(runs: Mapping[str, Any]) -> tuple[str, ...]:
    trained = {name: run for name, run in runs.items() if isinstance(run, Run)}
    return tuple(
        f"{said}; its last finite state is used" if trained[name].diverged_at else said
        for name, said in lost(trained).items()
    )


def trained_on(
    name: str,
    s: Any,
    arch: Architecture,
    schedule: Sequence[Phase],
    *,
    n: int | None = None,
    arguments: Mapping[str, Any] | None = None,
    dtype: Dtype | None = None,
    loss: Loss | None = None,
    log: LogGrid | None = None,
    own: Collection[str] = (),
) -> Callable[[int], RunConfig]:
    """Return seed → the configuration that trains a network on the seed's data set, `name`.

    The settings have d, n, n_test and dtype; `n` and `dtype`, if given, are used instead. The data
    set may take further `arguments`. Hyper-parameters of the settings replace those of the
    schedule, except the arm's `own`.
    """
    phases = tuned(schedule, s, n or s.n, own)

    def config(seed: int) -> RunConfig:
        drawn = {"d": s.d, "n": n or s.n, "seed": seed, **(arguments or {})}
        data = make({"name": name, "n_test": 0, **drawn}).spec  # draws no test set
        return RunConfig(
            arch=arch,
            data={**data, "n_test": s.n_test},
            schedule=phases,
            loss=loss or Loss(),
            seed=seed,
            dtype=dtype or s.dtype,
            log=log or LogGrid(),
        )

    return config


def training_set(config: RunConfig) -> Dataset:
    """Return the data of a run without its test set, which no floor depends on."""
    return make({**config.data, "n_test": 0})
