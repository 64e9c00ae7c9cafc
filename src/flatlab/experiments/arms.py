"""Comparisons: the same question put to several arms, each with some seeds.

An arm is a network, a data set and a schedule; a derived arm is computed from another arm's runs.
Each comparison has its own file, which lists its arms and its verdicts. This module and `showing`
do the common work: the plan, the runs sorted by arm and seed, the table and the picture of final
values.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
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
from .compared import Compared, by_seed, lost
from .contract import Experiment, Findings, Planned, Verdict, too_small

Tables = Mapping[str, list[dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Arm:
    """One line of a comparison.

    Attributes:
        key: Its name in files and code.
        label: Its name in tables and pictures.
        config: Seed → configuration of the run.
        floor: Data → the trace to compare with, or None if none is known.
        role: Picks its colour; arms of one kind share a role. If empty, the key is the role.
        reference: What the floor is, in a few words.
        panel: The source's name for it, for example "4b".
        ours: Whether the run is ours and not in the source.
        generalises: Whether it generalises according to the source; None if that is not asked.
    """

    key: str
    label: str
    config: Callable[[int], RunConfig]
    floor: Callable[[Dataset], float] | None = None
    role: str = ""
    reference: str = "floor"
    panel: str = ""
    ours: bool = False
    generalises: bool | None = None


@dataclasses.dataclass(frozen=True)
class Derived:
    """A line of a comparison computed from an earlier arm's runs, for example by early stopping.

    Attributes:
        key: Its name in files and code.
        label: Its name in tables and pictures.
        of: The key of the arm whose runs and floor it uses.
        change: Run → the changed run.
        role: As in `Arm`.
    """

    key: str
    label: str
    of: str
    change: Callable[[Run], Run]
    role: str = ""


AnyArm = Arm | Derived


@dataclasses.dataclass(frozen=True)
class Comparison:
    """An experiment made of arms.

    Attributes:
        id: "source/name".
        source: The paper or question it comes from.
        figure: Which figure or table, in a few words.
        title: The picture's title.
        claim: What is asked or claimed, in one sentence.
        presets: Name → settings, which have `seeds`.
        arms: Settings → arms; a derived arm comes after the arm it is derived from.
        verdicts: Runs → verdicts.
        finding: Runs → the result in plain language, written from the numbers.
        tables: Runs → tables by name; by default one row for each arm.
        plots: Runs → pictures; by default one of the final values.
        prefix: Start of the names of the runs; by default the name and a dash.
        least: Setting → the smallest value that can decide, as in `Experiment`.
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
    least: Mapping[str, float] | None = None

    @property
    def name(self) -> str:
        """The part of the id after the slash."""
        return self.id.partition("/")[2]

    def run_name(self, key: str, seed: int) -> str:
        """Return a run's name."""
        prefix = f"{self.name}-" if self.prefix is None else self.prefix
        return f"{prefix}{key}-seed{seed}"

    def plan(self, s: Any) -> list[Planned]:
        """Return all runs, the longest first."""
        planned = [
            Planned(self.run_name(arm.key, seed), arm.config(seed), ours=arm.ours)
            for arm in self.arms(s)
            if isinstance(arm, Arm)
            for seed in range(s.seeds)
        ]
        costs = CostModel()
        return sorted(planned, key=lambda p: -costs.seconds(p.config))

    def collect(self, s: Any, preset: str, runs: Mapping[str, Run]) -> Compared:
        """Sort the runs by arm and seed; settings that are too small decide nothing."""
        arms = {arm.key: arm for arm in self.arms(s)}
        found: dict[str, dict[int, Run]] = {}
        floors: dict[str, dict[int, float]] = {}
        for key, arm in arms.items():
            if isinstance(arm, Derived):
                found[key] = {seed: arm.change(run) for seed, run in found[arm.of].items()}
                floors[key] = floors[arm.of]
                continue
            found[key] = by_seed(runs, functools.partial(self.run_name, key), s.seeds)
            floor = arm.floor
            floors[key] = (
                {seed: floor(training_set(arm.config(seed))) for seed in range(s.seeds)}
                if floor
                else {}
            )
        decisive = not too_small(s, preset, self.presets, self.least)
        return Compared(self, s, arms, found, floors, decisive)

    def analyse(self, s: Any, preset: str, runs: Mapping[str, Run]) -> Findings:
        """Turn runs into tables, pictures, verdicts and a finding."""
        found = self.collect(s, preset, runs)
        return Findings(
            tuple(self.verdicts(found)),
            self.tables(found),
            self.plots(found),
            lost(runs),
            self.finding(found) if all(found.runs.values()) else "",
        )

    def experiment(self, module: str) -> Experiment:
        """Return it as an entry of the catalogue."""
        return Experiment(
            id=self.id,
            source=self.source,
            figure=self.figure,
            claim=self.claim,
            presets=self.presets,
            plan=self.plan,
            analyse=self.analyse,
            module=module,
            least=self.least,
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
) -> Callable[[int], RunConfig]:
    """Return seed → the configuration that trains a network on the seed's data set.

    Args:
        name: The data set's name.
        s: Settings with d, n, n_test and dtype.
        arch: The network.
        schedule: How it is trained.
        n: Number of examples; by default from the settings.
        arguments: Further arguments of the data set.
        dtype: The dtype; by default from the settings.
        loss: The training loss; by default the squared loss.
        log: When to log; by default on the usual grid.
    """

    def config(seed: int) -> RunConfig:
        drawn = {"d": s.d, "n": n or s.n, "seed": seed, **(arguments or {})}
        data = make({"name": name, "n_test": 0, **drawn}).spec  # draws no test set
        return RunConfig(
            arch=arch,
            data={**data, "n_test": s.n_test},
            schedule=tuple(schedule),
            loss=loss or Loss(),
            seed=seed,
            dtype=dtype or s.dtype,
            log=log or LogGrid(),
        )

    return config


def training_set(config: RunConfig) -> Dataset:
    """Return the data of a run without its test set, which no floor depends on."""
    return make({**config.data, "n_test": 0})
