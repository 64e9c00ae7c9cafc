"""Running an experiment: settings, jobs, findings."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError, unknown
from ..executor import Job, OnEvent, Outcome, run_jobs
from ..run import Run, load_run
from ..store import ensure_directory
from . import CATALOGUE
from .contract import Experiment, Findings


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
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise UserError(f"--set takes key=value, got {change!r}")
        if key not in fields:
            raise unknown("setting", key, fields)
        values[key] = parse_value(text)
    return dataclasses.replace(settings, **values)


def parse_value(text: str) -> Any:
    """Read a value as TOML does; a bare word is a string.

    >>> [parse_value(text) for text in ("3", "0.5", "true", "batch", "1e-3")]
    [3, 0.5, True, 'batch', 0.001]
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


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
    """Run what is not yet done, and analyse everything."""
    ensure_directory(out)
    planned = experiment.plan(settings)
    paths = {p.name: out / "runs" / f"{p.name}-{p.config.digest()}" for p in planned}
    jobs = [
        Job(
            p.name,
            "flatlab.training:run_job",
            {"config": p.config.to_dict(), "out": str(paths[p.name]), "fresh": fresh},
        )
        for p in planned
    ]
    outcomes = run_jobs(jobs, workers, on_event)
    runs: Mapping[str, Run] = {
        outcome.job.name: load_run(paths[outcome.job.name])
        for outcome in outcomes
        if outcome.status == "done"
    }
    findings = experiment.analyse(settings, preset, runs)
    return Report(
        experiment,
        preset,
        settings,
        findings,
        tuple(paths[name] for name in runs),
        tuple(outcomes),
    )
