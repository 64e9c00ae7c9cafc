"""Running an experiment: settings, jobs, findings."""

from __future__ import annotations

import contextlib
import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import RunConfig
from ..errors import FlatlabError, UserError, unknown
from ..executor import Job, OnEvent, Outcome, run_jobs
from ..run import Run, load_run
from ..specs import digest
from ..store import RunStore, ensure_directory, locked
from . import CATALOGUE
from .contract import Experiment, Findings, Planned


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


def parse_value(text: str) -> Any:
    """Read a value as TOML does; a bare word is a string.

    >>> [parse_value(text) for text in ("3", "0.5", "true", "batch", "1e-3")]
    [3, 0.5, True, 'batch', 0.001]
    """
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return table["value"] if len(table) == 1 else text  # a line break could smuggle in more


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
    planned = experiment.plan(settings)
    for p in planned:
        p.config.check_size(p.config.data.get("d", 1))
    ensure_directory(out)
    ensure_directory(out / "runs")
    folder = folder_of(experiment, preset, out)
    ensure_directory(folder)
    with locked(folder):  # two of the same experiment would take each other's runs for busy
        return _run(experiment, preset, settings, out, planned, workers, fresh, on_event)


def folder_of(experiment: Experiment, preset: str, out: Path) -> Path:
    """Return where an experiment's pictures go."""
    return out / f"{experiment.id.replace('/', '-')}-{preset}"


def _run(
    experiment: Experiment,
    preset: str,
    settings: Any,
    out: Path,
    planned: list[Planned],
    workers: int | None,
    fresh: bool,
    on_event: OnEvent | None,
) -> Report:
    paths = {p.name: out / "runs" / f"{p.name}-{p.config.digest()}" for p in planned}
    jobs = [
        Job(
            p.name,
            "flatlab.training:run_job",
            {"config": p.config.to_dict(), "out": str(paths[p.name]), "fresh": fresh},
        )
        for p in planned
    ]
    reused = {} if fresh else {p.name: _finished(paths[p.name], p.config) for p in planned}
    done = {name: run for name, run in reused.items() if run is not None}
    for job in jobs:
        if job.name in done and on_event:
            on_event(job, "reused", {})
    ran = run_jobs([job for job in jobs if job.name not in done], workers, on_event)
    made = {outcome.job.name: outcome for outcome in ran}
    outcomes = tuple(made.get(job.name) or _reused(job, done[job.name]) for job in jobs)
    runs: Mapping[str, Run] = {
        name: done.get(name) or load_run(paths[name])
        for name in (outcome.job.name for outcome in outcomes if outcome.status == "done")
    }
    findings = experiment.analyse(settings, preset, runs)
    return Report(
        experiment, preset, settings, findings, tuple(paths[name] for name in runs), outcomes
    )


def _finished(path: Path, config: RunConfig) -> Run | None:
    """Return the run that is there if it is over; what is damaged is left to its job."""
    with contextlib.suppress(FlatlabError):
        store = RunStore.read(path)
        result = store.load_result() or {}
        if result.get("status") in ("done", "diverged") and digest(store.config) == config.digest():
            return load_run(path)
    return None


def _reused(job: Job, run: Run) -> Outcome:
    result = {**run.result(), "path": str(run.path)}
    return Outcome(job, "done", result, error=None, exit_code=0, seconds=0.0)
