"""Everything of a source in one command: `reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from .app import CLAIM_FAILED, DIVERGED, DONE, INTERRUPTED, Fresh, Json, Out, app, complain, emit

if TYPE_CHECKING:
    from ..experiments.reproducing import Reproduction


@app.command()
def reproduce(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="The first part of an experiment's id, or an id")
    ],
    preset: Annotated[str, typer.Option(help="quick, lab or paper")] = "lab",
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; default: all cores.")] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time for training, as 90s, 30m or 2h: most telling first.")
    ] = None,
    out: Out = Path("results"),
    fresh: Fresh = False,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a claim fails.")] = False,
    as_json: Json = False,
) -> int:
    """Run everything of a source that is not yet done; give all verdicts in one table."""
    from ..experiments.budget import parse_budget
    from ..experiments.reproducing import prepare

    if jobs is not None and jobs < 1:
        raise UserError(f"jobs must be >= 1, got {jobs}")
    if seeds is not None and seeds < 1:
        raise UserError(f"seeds must be >= 1, got {seeds}")
    seconds = None if budget is None else parse_budget(budget)
    from .. import report
    from . import console

    plan = prepare(source, preset, out, workers=jobs, budget=seconds, fresh=fresh, seeds=seeds)
    with plan as prepared:
        with console.JobProgress(
            prepared.runs, quiet=as_json, expected=prepared.expected, workers=prepared.workers
        ) as progress:
            made = prepared.run(
                lambda job, kind, info: progress.update(job.name, kind, info),
                lambda id: progress.say(f"analysing {id}"),
            )
        if made.status == "interrupted":
            return _interrupted(made, as_json)
        found = report.write_reproduction(made)
    for outcome in made.trained.outcomes.values():
        if outcome.status == "failed":
            complain(f"{outcome.job.name} failed: {outcome.error}", CLAIM_FAILED)
    if as_json:
        emit({**found, "folder": made.folder})
    else:
        console.print_reproduction(found)
        console.print_line(f"files: {made.folder}")
    return _exit_code(made, found, strict)


def _interrupted(made: Reproduction, as_json: bool) -> int:
    done, all_runs = len(made.trained.runs), len(made.slots)
    if as_json:
        kept = {"source": made.source, "preset": made.preset, "status": made.status}
        emit({**kept, "runs_done": done, "runs": all_runs})
    return complain(
        f"interrupted: {done} of {all_runs} runs are done; run the same command again to continue",
        INTERRUPTED,
    )


def _exit_code(made: Reproduction, found: dict[str, Any], strict: bool) -> int:
    outcomes = made.trained.outcomes.values()
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if failed:
        return max(outcome.exit_code for outcome in failed)
    if any(run.status == "diverged" for run in made.trained.runs.values()):
        return DIVERGED
    claims_failed = any(row["verdict"] == "fails" for row in found["verdicts"])
    return CLAIM_FAILED if strict and claims_failed else DONE
