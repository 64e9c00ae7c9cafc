"""The commands `train` and `show`: train a run, show a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from .app import DONE, DataDir, Fresh, Json, app, code_of, emit, folder, interrupted

if TYPE_CHECKING:
    from ..training.run import Run


@app.command()
def train(
    config: Annotated[
        Path | None, Argument(metavar="FILE.toml", help="A run as a TOML file.")
    ] = None,
    arch: Annotated[
        str | None, Option(help="e.g. two_layer:width=500 or cnn:channels=[16,32]")
    ] = None,
    data: Annotated[
        str | None, Option(help="e.g. xor:d=30,n=100 or cifar10:n=1000, or an .npz")
    ] = None,
    phases: Annotated[
        list[str] | None,
        Option(
            "--phase",
            help="e.g. sam:lr=0.01,rho=0.05,batch_size=1,epochs=2000,until.accuracy=0.99",
        ),
    ] = None,
    loss: Annotated[
        str | None, Option(help="e.g. mse, cross_entropy, logistic:smoothing=0.2")
    ] = None,
    seed: Annotated[int | None, Option(help="Seed of weights, order and noise.")] = None,
    dtype: Annotated[str | None, Option(help="float32 or float64")] = None,
    measures: Annotated[
        list[str] | None,
        Option(
            "--measure",
            "--measures",
            help="Track it through training, e.g. lambda_max:examples=1000; repeatable",
        ),
    ] = None,
    log: Annotated[str | None, Option(help="Log points, e.g. per_decade=0,regular=20")] = None,
    start: Annotated[
        Path | None, Option(help="Start from the final parameters of this run directory.")
    ] = None,
    data_dir: DataDir = None,
    device: Annotated[str, Option(help="cpu or cuda, for torch")] = "cpu",
    threads: Annotated[int, Option(help="Threads for torch and BLAS.")] = 1,
    out: Annotated[Path | None, Option(help="Run directory.", parser=folder)] = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> int:
    """Train one network from flags or a TOML file (flags win). Continues an interrupted run."""
    from .from_flags import config_from_flags

    given: dict[str, Any] = {"arch": arch, "data": data, "schedule": phases or None, "loss": loss}
    given |= {"measures": measures or None, "log": log, "seed": seed, "dtype": dtype}
    plan, dataset = config_from_flags(config, {**given, "start": start})
    path = out or Path("results") / "runs" / f"train-{plan.digest()}"
    from ..jobs.progress import JobProgress
    from ..training.session import run_config

    with JobProgress(quiet=as_json) as progress:
        progress.update("train", "started", {})
        made = run_config(
            plan,
            data=dataset,
            out=path,
            fresh=fresh,
            report=lambda info: progress.update("train", "progress", info),
            device=device,
            threads=threads,
        )
    _show_run(made, as_json)
    if made.status == "interrupted":
        return interrupted()
    return code_of([made.status])


@app.command()
def show(
    path: Annotated[Path, Argument(metavar="DIR", help="A run directory.")],
    as_json: Json = False,
) -> int:
    """Show the summary and history of a run."""
    from ..training.run import load_run

    _show_run(load_run(path), as_json)
    return DONE


def _show_run(made: Run, as_json: bool) -> None:
    from ..files.store import HISTORY
    from .console import print_history, print_line
    from .listing import describe_run

    if as_json:
        history = {name: column.tolist() for name, column in made.columns.items()}
        kept = {"path": made.path, "config": made.config.to_dict(), "history": history}
        emit({**made.result(), **kept})
        return
    table = made.path and made.path / HISTORY
    where = f"in {table}" if table and table.exists() else "--json prints them"
    print_history(made.rows(16), where)
    for line in describe_run(made):
        print_line(line)
