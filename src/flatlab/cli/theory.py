"""The commands for theory: `verify`, `construct` and `flattest`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..errors import UserError
from .app import CLAIM_FAILED, DONE, INTERRUPTED, Json, app, complain, emit

if TYPE_CHECKING:
    from ..theory.columns import Family
    from ..training.run import Run

Data = Annotated[str, typer.Option(help="e.g. xor:d=30,n=100, or a .npz file")]
Folder = Annotated[Path | None, typer.Option("--out", help="Run directory.")]
Again = Annotated[bool, typer.Option("--fresh", help="Make it again even if it exists.")]


@app.command()
def verify(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="An id, its beginning, or a pattern with *."),
    ] = None,
    source: Annotated[str | None, typer.Option(help="Only claims of this source.")] = None,
    thorough: Annotated[bool, typer.Option("--thorough", help="Larger sizes, longer.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of all random instances.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes; default: all cores.")] = None,
    evidence: Annotated[bool, typer.Option("--show", help="Print all evidence.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Also list unchecked claims.")] = False,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Draw the pictures of the theory, check nothing.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("results/theory"),
    results: Annotated[
        Path, typer.Option(help="Where `run` and `reproduce` stored their results.")
    ] = Path("results"),
    as_json: Json = False,
) -> int:
    """Check the claims of the sources: one theorem by its number, or all.

    A claim about training is decided by an experiment; its stored verdict is shown.
    """
    from ..claims import verifying
    from . import console

    if pictures:
        return _draw(out, as_json)
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs must be >= 1, got {jobs}")
    _check_seed(seed)
    chosen = verifying.select(ids or (), source)
    with console.CheckProgress(verifying.checks_of(chosen), quiet=as_json) as progress:
        found = verifying.verify(chosen, seed, thorough, jobs, progress.update, results)
    if as_json:
        emit(found.to_dict())
    elif evidence:
        for result in found.results:
            console.print_evidence(result)
    else:
        console.print_verification(found, () if ids or everything else verifying.UNCHECKED)
    if found.left:
        text = f"interrupted with {len(found.left)} claims left: run the same command again"
        return complain(text, INTERRUPTED)
    return CLAIM_FAILED if found.surprises else DONE


def _draw(folder: Path, as_json: bool) -> int:
    from ..report import save
    from ..theory.pictures import EXPECTED_SECONDS, PICTURES
    from .console import Waiting, print_line

    with Waiting("drawing", EXPECTED_SECONDS, quiet=as_json) as waiting:
        paths = save((picture(waiting.say) for picture in PICTURES.values()), folder)
    if as_json:
        emit({"pictures": paths})
    else:
        for path in paths:
            print_line(f"picture: {path}")
    return DONE


@app.command()
def construct(
    name: Annotated[
        str, typer.Argument(help="e.g. memorising:depth=3; see `flatlab list constructions`")
    ],
    data: Data,
    out: Folder = None,
    fresh: Again = False,
    as_json: Json = False,
) -> int:
    """Build a network from a proof and store it as a run, to measure, show or train further."""
    from ..data import identity
    from ..data.catalogue import make
    from ..specs import digest, parse_spec
    from ..theory.constructions import construct as construction_of
    from ..training.session import store_network
    from .from_flags import data_spec

    wanted, options = parse_spec(name)
    for key, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{key} must be finite, got {value}")
    made = make(data_spec(data))
    named = digest({"construction": wanted, "options": options, "data": identity(made.spec)})
    path = out or Path("results") / "runs" / f"construct-{wanted}-{named}"
    network = construction_of(wanted, made, options)
    start = {"construction": wanted, **options}
    run = store_network(network.arch, network.params, network.data, start, path, fresh=fresh)
    _tell({"construction": wanted, **_facts(run)}, as_json)
    return DONE


@app.command()
def flattest(
    arch: Annotated[str, typer.Option(help="no-bias, bias or sim-bn")],
    data: Data,
    width: Annotated[int | None, typer.Option(help="Neurons; by default as needed.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    budget: Annotated[float, typer.Option(help="Seconds for the search.")] = 60.0,
    out: Folder = None,
    fresh: Again = False,
    as_json: Json = False,
) -> int:
    """Find the interpolating network with the smallest trace directly, and store it as a run."""
    from ..data import identity
    from ..data.catalogue import make
    from ..specs import digest
    from ..theory.flattest import flattest as find
    from ..training.session import store_network
    from .console import Waiting
    from .from_flags import data_spec

    _check_seed(seed)
    if width is not None and width < 1:
        raise UserError(f"width must be >= 1, got {width}")
    made = make(data_spec(data))
    start: dict[str, Any] = {"flattest": arch, "seed": seed, "budget": budget}
    start |= {} if width is None else {"width": width}
    path = (
        out
        or Path("results") / "runs" / f"flattest-{digest({**start, 'data': identity(made.spec)})}"
    )
    with Waiting("searching", budget, quiet=as_json) as waiting:
        found = find(
            made, cast("Family", arch), width=width, seed=seed, budget_seconds=budget,
            progress=waiting.say,
        )  # fmt: skip
    network = found.solution
    run = store_network(network.arch, network.params, network.data, start, path, fresh=fresh)
    facts = {
        "arch": arch,
        **_facts(run),
        "trace": found.trace,
        "limit": found.limit,
        "reference": found.reference,
        "dual_bound": found.dual_bound,
        "search": found.complete,
        "neurons": found.neurons,
        "on_kinks": found.on_kinks,
        "seconds": round(found.seconds, 2),
    }
    _tell(facts, as_json)
    return DONE


def _check_seed(seed: int) -> None:
    if seed < 0:
        raise UserError(f"seed must be >= 0, got {seed}")


def _facts(run: Run) -> dict[str, Any]:
    """Return a summary of a constructed network."""
    keys = ("train_loss", "trace", "test_error", "test_loss")
    return {
        "path": str(run.path),
        "parameters": sum(value.size for value in run.params.values()),
        **{key: run.final[key] for key in keys if key in run.final},
    }


def _tell(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(facts)
        return
    from .console import print_table

    rows = [{"": key.replace("_", " "), "value": value} for key, value in facts.items()]
    print_table(rows, str(facts.get("construction", facts.get("arch"))))
