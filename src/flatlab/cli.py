"""The command line: parse, call, print, exit code.

Heavy imports stand inside the commands, so that `flatlab --help` answers at once.
"""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

from .errors import FlatlabError, UserError, unknown

if TYPE_CHECKING:
    from .experiments.running import Report
    from .run import Run

DONE, CLAIM_FAILED, USER_MISTAKE, DIVERGED, INTERRUPTED = 0, 1, 2, 3, 130

app = typer.Typer(
    help="A laboratory for one question: does a flat minimum generalise, and why?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Out = Annotated[Path, typer.Option(help="Folder for results.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run again even if it is done.")]


def main() -> NoReturn:
    """Run the command line; a foreseen error is one line on stderr, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without ✓ shows a ?
            stream.reconfigure(errors="replace")
    try:
        code = app(standalone_mode=False)
    except FlatlabError as error:
        code = _complain(error, error.exit_code)
    except TyperException as error:  # no arguments at all: the help is printed, nothing to add
        text = error.format_message()
        code = _complain(text, USER_MISTAKE) if text else USER_MISTAKE
    except MemoryError as error:
        code = _complain(f"not enough memory ({error}): choose smaller sizes", USER_MISTAKE)
    except (KeyboardInterrupt, typer.Abort):
        code = _complain("interrupted: run the same command again to continue", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone, as in `flatlab list | head`
        sys.stderr.close()
        code = DONE
    sys.exit(code or DONE)


def _complain(message: object, code: int) -> int:
    print(f"flatlab: {' '.join(str(message).split())}", file=sys.stderr)
    return code


def _emit(document: Any) -> None:
    """Print one JSON document; numbers that are not finite become null."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(name): plain(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [plain(part) for part in value]
        if hasattr(value, "item"):  # a numpy scalar, whose booleans are no bool
            value = value.item()
        if isinstance(value, float):
            return value if abs(value) < float("inf") else None
        return value if isinstance(value, str | int | bool | None) else str(value)

    print(json.dumps(plain(document)))


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"flatlab {version('flatlab')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of flatlab itself."""


@app.command("list")
def list_(
    kind: Annotated[
        str,
        typer.Argument(help="experiments, data, models, algorithms, measures or optimizers"),
    ] = "experiments",
    as_json: Json = False,
) -> int:
    """List what there is: experiments, data, models, algorithms, measures or optimizers."""
    from .listing import LISTS

    if kind not in LISTS:
        from .errors import unknown

        raise unknown("list", kind, LISTS)
    rows = LISTS[kind]()
    if as_json:
        _emit(rows)
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
    from .experiments.running import find, folder_of, run_experiment, settings_of

    experiment = find(experiment_id)
    settings = settings_of(experiment, preset, seeds, changes or [])
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs must be >= 1, got {jobs}")
    from . import console, report

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
    interrupted = any(outcome.status == "interrupted" for outcome in result.outcomes)
    findings = result.findings
    figures = [] if interrupted or not result.paths else report.save(findings.plots, folder)
    document = {
        "id": experiment_id,
        "preset": preset,
        "seconds": round(time.monotonic() - started, 2),
        "verdicts": [dataclasses.asdict(verdict) for verdict in findings.verdicts],
        "tables": findings.tables,
        "runs": result.paths,
        "figures": figures,
    }
    for outcome in result.outcomes:
        if outcome.status == "failed":
            _complain(f"{outcome.job.name} failed: {outcome.error}", CLAIM_FAILED)
    if as_json:
        _emit(document)
    else:
        for name, rows in findings.tables.items():
            console.print_table(rows, name)
        console.print_verdicts(findings.verdicts)
        for note in findings.notes:
            console.print_line(f"note: {note}")
        for figure in figures:
            console.print_line(f"picture: {figure}")
        console.print_line(f"{document['seconds']} s, runs in {out / 'runs'}")
    if interrupted:
        return _complain("interrupted: run the same command again to continue", INTERRUPTED)
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
def train(
    config: Annotated[
        Path | None, typer.Argument(metavar="FILE.toml", help="A run as a TOML file.")
    ] = None,
    arch: Annotated[str | None, typer.Option(help="e.g. two_layer:width=500,bias=true")] = None,
    data: Annotated[str | None, typer.Option(help="e.g. xor:d=30,n=100, or a .npz file")] = None,
    phases: Annotated[
        list[str] | None,
        typer.Option("--phase", help="e.g. sam:lr=0.01,rho=0.05,batch_size=1,epochs=2000"),
    ] = None,
    loss: Annotated[str | None, typer.Option(help="e.g. mse or logistic:smoothing=0.2")] = None,
    seed: Annotated[int | None, typer.Option(help="Initial weights, order, noise.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory.")] = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> int:
    """Train one network, from flags or a TOML file (flags win). Continues what was interrupted."""
    from .from_flags import config_from_flags

    given = {"arch": arch, "data": data, "schedule": phases or None, "loss": loss}
    plan, dataset = config_from_flags(config, {**given, "seed": seed, "dtype": dtype})
    path = out or Path("results") / "runs" / f"train-{plan.digest()}"
    from .console import JobProgress
    from .training import run_config

    with JobProgress(1, quiet=as_json) as progress:
        progress.update("train", "started", {})
        made = run_config(
            plan,
            data=dataset,
            out=path,
            fresh=fresh,
            report=lambda info: progress.update("train", "progress", info),
        )
    _show_run(made, as_json)
    if made.status == "interrupted":
        return _complain("interrupted: run the same command again to continue", INTERRUPTED)
    return {"done": DONE, "diverged": DIVERGED}[made.status]


@app.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    as_json: Json = False,
) -> int:
    """Show the summary and history of a run."""
    from .run import load_run

    _show_run(load_run(path), as_json)
    return DONE


def _show_run(made: Run, as_json: bool) -> None:
    from .console import print_line, print_table
    from .listing import describe_run, some_rows

    if as_json:
        history = {name: column.tolist() for name, column in made.columns.items()}
        _emit(
            {
                **made.result(),
                "path": made.path,
                "config": made.config.to_dict(),
                "history": history,
            }
        )
        return
    print_table(some_rows(made.columns, 16), "history")
    for line in describe_run(made):
        print_line(line)


@app.command()
def measure(
    target: Annotated[
        str, typer.Argument(help="A run directory, or MODULE:FACTORY giving (model, loss, data)")
    ],
    measures: Annotated[
        list[str] | None,
        typer.Option(help="e.g. trace or lambda_max:tolerance=1e-4; may be repeated; or all"),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Measure on this instead, e.g. xor:d=30,n=1000 or a.npz")
    ] = None,
    mode: Annotated[str, typer.Option(help="eval, train or recomputed")] = "eval",
    params: Annotated[
        list[str] | None, typer.Option(help="Name pattern or layer; may be repeated")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="float64 raises the precision")] = None,
    seed: Annotated[int, typer.Option(help="Decides probes and start vectors.")] = 0,
    budget: Annotated[float | None, typer.Option(help="Seconds for each measure.")] = None,
    as_json: Json = False,
) -> int:
    """Measure the sharpness of a stored run or of your own model."""
    from .measuring import measure as take
    from .targets import target_of

    found = target_of(target, data)
    chosen: Any = measures or None
    readings = take(
        found.model, found.loss, found.data, "all" if measures == ["all"] else chosen, mode,
        params or None, seed, budget, dtype=dtype, reference=found.reference,
        progress=False if as_json else None, skip=measures == ["all"],
    )  # fmt: skip
    if as_json:
        _emit({"target": target, "measures": readings.to_dict(), "skipped": readings.skipped})
        return DONE
    from .console import print_line, print_table

    print_table(readings.rows(), target)
    print_line(readings.footnote())
    for name, reason in readings.skipped.items():
        print_line(f"left out {name}: {reason}")
    return DONE


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="A measure, e.g. trace; see `flatlab list measures`")],
    as_json: Json = False,
) -> int:
    """Say what a measure is, what it is invariant to, what it costs and what it is not."""
    from .explaining import explanation, facts

    if as_json:
        _emit(facts(name))
    else:
        from .console import print_line

        print_line(explanation(name))
    return DONE


@app.command()
def bench(
    only: Annotated[str | None, typer.Option(help="Run one benchmark.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Longer, larger.")] = False,
    as_json: Json = False,
) -> int:
    """Measure the engine against its peers, as ratios from one run."""
    import runpy

    script = Path(__file__).parents[2] / "benchmarks" / "run.py"
    if not script.exists():
        raise UserError(
            f"benchmarks are part of the source checkout, and {script} does not exist: "
            "clone the repository and install it with pip install -e ."
        )
    flags = ["--full"] * full + ["--json"] * as_json
    sys.path.insert(0, str(script.parent))
    made = runpy.run_path(str(script))
    if only is not None and only not in made["BENCHMARKS"]:
        raise unknown("benchmark", only, made["BENCHMARKS"])
    made["main"]([*(["--only", only] if only else []), *flags])
    return DONE
