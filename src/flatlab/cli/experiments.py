"""The commands `list` and `bench`: what flatlab contains, and how fast it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ..errors import UserError, unknown
from .app import DONE, Json, app, emit


@app.command("list")
def list_(
    kind: Annotated[
        str,
        Argument(
            help="experiments, data, models, losses, optimizers, measures, claims or constructions"
        ),
    ] = "experiments",
    as_json: Json = False,
) -> int:
    """List experiments, data, models, optimizers, measures, claims and more."""
    from .listing import LISTS

    if kind not in LISTS:
        raise unknown("list", kind, LISTS)
    rows = LISTS[kind]()
    if as_json:
        emit(rows)
    else:
        from .console import print_table

        print_table(rows, kind)
    return DONE


@app.command()
def bench(
    only: Annotated[list[str] | None, Option(help="Run this benchmark; may be repeated.")] = None,
    full: Annotated[bool, Option("--full", help="Larger sizes, longer runs.")] = False,
    as_json: Json = False,
) -> int:
    """Compare the engine's speed with other libraries, as ratios measured in one run."""
    import runpy

    script = Path(__file__).parents[3] / "benchmarks" / "run.py"
    if not script.exists():
        raise UserError(
            f"benchmarks are part of the source checkout, and {script} does not exist: "
            "clone the repository and install it with pip install -e ."
        )
    flags = ["--full"] * full
    sys.path.insert(0, str(script.parent))
    made = runpy.run_path(str(script))
    for name in only or []:
        if name not in made["BENCHMARKS"]:
            raise unknown("benchmark", name, made["BENCHMARKS"])
        flags += ["--only", name]
    document = made["main"](flags)
    if as_json:
        emit(document)
    return DONE
