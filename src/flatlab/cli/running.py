"""The command `run`, and `reproduce`, another name for it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ..errors import UserError, whole_number
from .app import (
    CLAIM_FAILED,
    DONE,
    DataDir,
    Fresh,
    Json,
    app,
    code_of,
    complain,
    emit,
    folder,
    interrupted,
)

if TYPE_CHECKING:
    from ..experiments.results import Results


@app.command("reproduce", help="Run every experiment of a source, with the options of `run`.")
@app.command()
def run(
    ctx: typer.Context,
    ids: Annotated[
        list[str],
        Argument(metavar="ID", help="e.g. wen2023/table1; or your own, mine.py:EXPERIMENT"),
    ],
    preset: Annotated[str, Option(help="quick, lab or paper")] = "lab",
    seeds: Annotated[int | None, Option(help="Number of seeds.")] = None,
    jobs: Annotated[int | None, Option(help="Runs at a time; default: all cores.")] = None,
    changes: Annotated[
        list[str] | None,
        Option("--set", help="Change a setting, key=value, of every experiment that has it."),
    ] = None,
    budget: Annotated[
        str | None,
        Option(help="Time for training, e.g. 90s, 30m or 2h; most informative first."),
    ] = None,
    engine: Annotated[str, Option(help="local (processes of this machine) or ray")] = "local",
    address: Annotated[
        str | None, Option(metavar="HOST:PORT", help="Ray cluster; default: one on this machine.")
    ] = None,
    cpus_per_job: Annotated[
        float | None, Option(help="CPUs that Ray reserves for a run; default: 1.")
    ] = None,
    gpus_per_job: Annotated[
        float | None, Option(help="GPUs for a run on Ray, e.g. 0.25; default: none.")
    ] = None,
    retries: Annotated[
        int | None,
        Option(help="Restarts of a run whose process or node died; default: ray 3, local 0."),
    ] = None,
    timeout: Annotated[str | None, Option(help="Time for one run, e.g. 2h.")] = None,
    fail_fast: Annotated[
        bool, Option("--fail-fast", help="Stop and save everything when a run fails.")
    ] = False,
    retry_failed: Annotated[
        bool, Option("--retry-failed", help="Retry runs that failed by themselves, too.")
    ] = False,
    data_dir: DataDir = None,
    out: Annotated[Path, Option(help="Folder for results.", parser=folder)] = Path("results"),
    formats: Annotated[
        str, Option("--format", help="Formats of pictures: png, pdf, svg, with commas.")
    ] = "png",
    fresh: Fresh = False,
    strict: Annotated[bool, Option("--strict", help="Exit with 1 if a claim fails.")] = False,
    as_json: Json = False,
) -> int:
    """Run experiments: train what is missing, judge the claims, draw the pictures."""
    from ..experiments.catalogue import parse_changes
    from . import verbs
    from .console import print_results

    if jobs is not None:
        whole_number("jobs", jobs, least=1)
    _check_sources(ids, ctx.info_name == "run")
    _check_once(changes or [], seeds)
    results = verbs.run(
        ids,
        preset,
        seeds=seeds,
        out=out,
        budget=budget,
        workers=jobs,
        fresh=fresh,
        changes=parse_changes(changes or []),
        formats=formats,
        progress=not as_json,
        engine=engine,
        address=address,
        cpus_per_job=cpus_per_job,
        gpus_per_job=gpus_per_job,
        retries=retries,
        timeout=timeout,
        fail_fast=fail_fast,
        retry_failed=retry_failed,
    )
    for failed in results.failed:
        complain(f"{failed.name} failed: {failed.error}", CLAIM_FAILED)
    if as_json:
        emit(results.to_dict())
    elif results.status != "interrupted":
        print_results(results)
    return exit_code(results, strict, fail_fast)


def _check_sources(ids: list[str], alone: bool) -> None:
    """Refuse a source without experiments and, if `alone`, a source in place of an experiment."""
    from ..claims.sources import SOURCES
    from ..experiments import CATALOGUE

    sources = sorted({id.partition("/")[0] for id in CATALOGUE})
    for id in ids:
        if id in SOURCES and id not in sources:
            raise UserError(
                f"{id} has no experiments yet: the sources that can be run are "
                f"{' and '.join(sources)}; `flatlab verify --source {id}` checks its claims"
            )
        if alone and id in sources:
            count = sum(e.partition("/")[0] == id for e in CATALOGUE)
            raise UserError(
                f"{id} is a source, not an experiment: `flatlab reproduce {id}` runs all of its "
                f"{count} experiments, `flatlab list` names them"
            )


def _check_once(changes: list[str], seeds: int | None) -> None:
    """Refuse a setting that is given twice."""
    names = [text.partition("=")[0] for text in changes]
    given = Counter([*names, *(["seeds"] if seeds is not None else [])])
    for name, times in given.items():
        if times > 1:
            also = " (--seeds is one of them)" if name == "seeds" and seeds is not None else ""
            raise UserError(f"{name} is given {times} times{also}: give it once")


def exit_code(results: Results, strict: bool, fail_fast: bool = False) -> int:
    """Return a failed run's exit code, else `code_of`'s, else 1 if `strict` and a claim fails."""
    if results.status == "interrupted" and not (fail_fast and results.failed):
        done = f"{results.done} of {len(results.runs)} runs are done"
        return interrupted(f"; {done}")
    if results.failed:
        return max(run.exit_code for run in results.failed)
    claims_failed = any(verdict.holds is False for verdict in results.verdicts)
    return code_of(run.status for run in results.runs) or (
        CLAIM_FAILED if strict and claims_failed else DONE
    )
