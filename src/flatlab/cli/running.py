"""The commands `run` and `reproduce`, two names for the same call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError
from .app import CLAIM_FAILED, DIVERGED, DONE, INTERRUPTED, Fresh, Json, Out, app, complain, emit

if TYPE_CHECKING:
    from ..experiments.results import Results

Preset = Annotated[str, typer.Option(help="quick, lab or paper")]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds.")]
Jobs = Annotated[int | None, typer.Option(help="Runs at a time; default: all cores.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting, key=value, of every experiment that has it."),
]
Budget = Annotated[
    str | None, typer.Option(help="Time for training, e.g. 90s, 30m or 2h; most informative first.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if a claim fails.")]


@app.command()
def run(
    ids: Annotated[
        list[str], typer.Argument(metavar="ID", help="e.g. wen2023/table1; or a whole source")
    ],
    preset: Preset = "lab",
    seeds: Seeds = None,
    jobs: Jobs = None,
    changes: Set = None,
    budget: Budget = None,
    out: Out = Path("results"),
    fresh: Fresh = False,
    strict: Strict = False,
    as_json: Json = False,
) -> int:
    """Run experiments: train what is missing, judge the claims, draw the pictures."""
    return _run(ids, preset, seeds, jobs, changes, budget, out, fresh, strict, as_json)


@app.command()
def reproduce(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="The first part of an experiment's id, or an id")
    ],
    preset: Preset = "lab",
    seeds: Seeds = None,
    jobs: Jobs = None,
    changes: Set = None,
    budget: Budget = None,
    out: Out = Path("results"),
    fresh: Fresh = False,
    strict: Strict = False,
    as_json: Json = False,
) -> int:
    """Run every experiment of a source; the same as `run SOURCE`."""
    return _run([source], preset, seeds, jobs, changes, budget, out, fresh, strict, as_json)


def _run(
    ids: list[str],
    preset: str,
    seeds: int | None,
    jobs: int | None,
    changes: list[str] | None,
    budget: str | None,
    out: Path,
    fresh: bool,
    strict: bool,
    as_json: bool,
) -> int:
    from .. import experiments, report
    from ..experiments.budget import parse_budget
    from ..experiments.catalogue import parse_changes
    from . import console

    if jobs is not None and jobs < 1:
        raise UserError(f"jobs must be >= 1, got {jobs}")
    with console.AnsweringProgress(quiet=as_json) as progress:
        results = experiments.run(
            ids,
            preset,
            out=out,
            seeds=seeds,
            changes=parse_changes(changes or []),
            workers=jobs,
            budget=None if budget is None else parse_budget(budget),
            fresh=fresh,
            on_plan=progress.expect,
            on_event=lambda job, kind, info: progress.update(job.name, kind, info),
            on_analysis=lambda id: progress.say(f"analysing {id}"),
        )
    if results.status != "interrupted":
        report.publish(results)
    for failed in results.failed:
        complain(f"{failed.name} failed: {failed.error}", CLAIM_FAILED)
    if as_json:
        emit(results.to_dict())
    elif results.status != "interrupted":
        console.print_results(results)
    return exit_code(results, strict)


def exit_code(results: Results, strict: bool) -> int:
    """Return the exit code: a failed run's own, 3 if a run diverged, 1 for `--strict`."""
    if results.status == "interrupted":
        return complain(
            f"interrupted: run the same command again to continue; {results.done} of "
            f"{len(results.runs)} runs are done",
            INTERRUPTED,
        )
    if results.failed:
        return max(run.exit_code for run in results.failed)
    if any(run.status == "diverged" for run in results.runs):
        return DIVERGED
    claims_failed = any(verdict.holds is False for verdict in results.verdicts)
    return CLAIM_FAILED if strict and claims_failed else DONE
