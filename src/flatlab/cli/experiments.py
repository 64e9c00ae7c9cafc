"""Running and showing: `list`, `run`, `train`, `show`, `bench`."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError, unknown
from .app import CLAIM_FAILED, DIVERGED, DONE, Fresh, Json, Out, app, complain, emit, interrupted

if TYPE_CHECKING:
    from ..experiments.running import Report


@app.command("list")
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            help="experiments, data, models, algorithms, measures, optimizers, "
            "claims or constructions"
        ),
    ] = "experiments",
    as_json: Json = False,
) -> int:
    """List what there is: experiments, data, models, algorithms, measures, claims and more."""
    from .listing import LISTS

    if kind not in LISTS:
        from ..errors import unknown

        raise unknown("list", kind, LISTS)
    rows = LISTS[kind]()
    if as_json:
        emit(rows)
    else:
        from .console import print_table

        print_table(rows, kind)
    return DONE


@app.command()
def run(
    experiment_id: Annotated[str, typer.Argument(metavar="ID", help="e.g. wen2023/table1")],
    preset: Annotated[str, typer.Option(help="quick, lab or paper")] = "lab",
    seeds: Annotated[int | None, typer.Option(help="Number of seeds.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; default: all cores.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: key=value.")
    ] = None,
    out: Out = Path("results"),
    fresh: Fresh = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a claim fails.")] = False,
    as_json: Json = False,
) -> int:
    """Run an experiment: train what is not yet done, judge its claims, draw its pictures."""
    from ..experiments.running import find, folder_of, run_experiment, settings_of

    experiment = find(experiment_id)
    settings = settings_of(experiment, preset, seeds, changes or [])
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs must be >= 1, got {jobs}")
    from .. import report
    from . import console

    started = time.monotonic()
    with console.JobProgress(len(experiment.plan(settings)), quiet=as_json) as progress:
        result = run_experiment(
            experiment,
            preset,
            settings,
            out,
            workers=jobs,
            fresh=fresh,
            on_event=lambda job, kind, info: progress.update(job.name, kind, info),
        )
    folder = folder_of(experiment, preset, out)
    stopped = any(outcome.status == "interrupted" for outcome in result.outcomes)
    findings = result.findings
    nothing = result.outcomes and not result.paths  # a theory's experiment has no runs to miss
    figures = [] if stopped or nothing else report.save(findings.plots, folder)
    document = {
        "id": experiment_id,
        "preset": preset,
        "seconds": round(time.monotonic() - started, 2),
        "finding": findings.finding,
        "verdicts": [dataclasses.asdict(verdict) for verdict in findings.verdicts],
        "tables": findings.tables,
        "runs": result.paths,
        "figures": figures,
    }
    for outcome in result.outcomes:
        if outcome.status == "failed":
            complain(f"{outcome.job.name} failed: {outcome.error}", CLAIM_FAILED)
    if as_json:
        emit(document)
    else:
        for name, rows in findings.tables.items():
            console.print_table(rows, name)
        console.print_verdicts(findings.verdicts)
        if findings.finding:
            console.print_line(f"finding: {findings.finding}")
        for note in findings.notes:
            console.print_line(f"note: {note}")
        for figure in figures:
            console.print_line(f"picture: {figure}")
        where = f", runs in {out / 'runs'}" if result.outcomes else ""
        console.print_line(f"{document['seconds']} s{where}")
    if stopped:
        return interrupted()
    return _exit_code(result, strict)


def _exit_code(result: Report, strict: bool) -> int:
    failed = [outcome for outcome in result.outcomes if outcome.status == "failed"]
    if failed:
        return max(outcome.exit_code for outcome in failed)
    if any(o.result and o.result["status"] == "diverged" for o in result.outcomes):
        return DIVERGED
    claims_failed = any(verdict.word == "fails" for verdict in result.findings.verdicts)
    return CLAIM_FAILED if strict and claims_failed else DONE


@app.command()
def bench(
    only: Annotated[
        list[str] | None, typer.Option(help="Run this benchmark; may be repeated.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Longer, larger.")] = False,
    as_json: Json = False,
) -> int:
    """Measure the engine against its peers, as ratios from one run."""
    import runpy

    script = Path(__file__).parents[3] / "benchmarks" / "run.py"
    if not script.exists():
        raise UserError(
            f"benchmarks are part of the source checkout, and {script} does not exist: "
            "clone the repository and install it with pip install -e ."
        )
    flags = ["--full"] * full + ["--json"] * as_json
    sys.path.insert(0, str(script.parent))
    made = runpy.run_path(str(script))
    for name in only or []:
        if name not in made["BENCHMARKS"]:
            raise unknown("benchmark", name, made["BENCHMARKS"])
        flags += ["--only", name]
    made["main"](flags)
    return DONE
