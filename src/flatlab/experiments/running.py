"""Running an experiment: settings, jobs, findings."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError, unknown
from ..files.store import ensure_directory, locked
from ..jobs import OnEvent, Outcome
from ..specs import parse_value
from ..training.run import Run
from . import CATALOGUE
from .contract import Experiment, Findings, Planned
from .pool import slots, train


@dataclasses.dataclass(frozen=True)
class Report:
    """What running an experiment gives: findings, the runs behind them, and what went wrong."""

    experiment: Experiment
    preset: str
    settings: Any
    findings: Findings
    paths: tuple[Path, ...]
    outcomes: tuple[Outcome, ...]


def find(experiment_id: str) -> Experiment:
    """Return an experiment of the catalogue."""
    if experiment_id not in CATALOGUE:
        raise unknown("experiment", experiment_id, CATALOGUE)
    return CATALOGUE[experiment_id]


def settings_of(
    experiment: Experiment, preset: str, seeds: int | None, changes: Sequence[str]
) -> Any:
    """Return a preset's settings with `key=value` changes; values are written as in TOML."""
    if preset not in experiment.presets:
        raise unknown("preset", preset, experiment.presets)
    settings = experiment.presets[preset]
    values: dict[str, Any] = {} if seeds is None else {"seeds": seeds}
    fields = [field.name for field in dataclasses.fields(settings)]
    if seeds is not None and "seeds" not in fields:
        raise UserError(f"{experiment.id} draws nothing and has no seeds: leave --seeds out")
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise UserError(f"--set takes key=value, got {change!r}")
        if key not in fields:
            raise unknown("setting", key, fields)
        values[key] = parse_value(text)
    return dataclasses.replace(settings, **values)


def run_experiment(
    experiment: Experiment,
    preset: str,
    settings: Any,
    out: Path,
    *,
    workers: int | None = None,
    fresh: bool = False,
    on_event: OnEvent | None = None,
) -> Report:
    """Run what is not yet done, and analyse everything.

    `on_event` hears of the executor's events, and of "reused" for each run that was done before.
    """
    planned = planned_runs(experiment, settings)
    folder = folder_of(experiment, preset, out)
    with held([folder], out):  # two of the same experiment would take each other's runs for busy
        made = slots(planned, out, fresh)
        trained = train(made, workers=workers, fresh=fresh, on_event=on_event)
    keys = {p.name: p.config.digest() for p in planned}
    runs = {name: trained.runs[key] for name, key in keys.items() if key in trained.runs}
    return Report(
        experiment,
        preset,
        settings,
        analysed(experiment, settings, preset, runs, len(keys)),
        tuple(made[keys[name]].path for name in runs),
        tuple(trained.outcomes[key] for key in keys.values()),
    )


def analysed(
    experiment: Experiment, settings: Any, preset: str, runs: Mapping[str, Run], planned: int
) -> Findings:
    """Return an experiment's findings; where runs are missing, none of its claims is decided."""
    findings = experiment.analyse(settings, preset, runs)
    if len(runs) == planned:
        return findings
    reason = f"without {planned - len(runs)} of its {planned} runs nothing is decided"
    verdicts = (dataclasses.replace(v, holds=None, reason=reason) for v in findings.verdicts)
    return dataclasses.replace(findings, verdicts=tuple(verdicts))


def planned_runs(experiment: Experiment, settings: Any) -> list[Planned]:
    """Return an experiment's runs; a network that this machine cannot hold is an error."""
    planned = experiment.plan(settings)
    for p in planned:
        p.config.check_size(p.config.data.get("d", 1))
    return planned


@contextlib.contextmanager
def held(folders: Sequence[Path], out: Path) -> Iterator[None]:
    """Make the folders of an output and hold them for this process."""
    ensure_directory(out)
    ensure_directory(out / "runs")
    with contextlib.ExitStack() as stack:
        for folder in folders:
            ensure_directory(folder)
            stack.enter_context(locked(folder))
        yield


def folder_of(experiment: Experiment, preset: str, out: Path) -> Path:
    """Return where an experiment's pictures go."""
    return out / f"{experiment.id.replace('/', '-')}-{preset}"
