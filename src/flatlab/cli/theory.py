"""The commands for theory: `verify`, `construct` and `flattest`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Argument, Option

from ..errors import UserError, whole_number
from .app import CLAIM_FAILED, DONE, INTERRUPTED, Json, app, complain, emit, folder

if TYPE_CHECKING:
    from ..data import Dataset
    from ..theory.columns import Family
    from ..theory.solution import Solution

Data = Annotated[str, Option(help="e.g. xor:d=30,n=100, or a .npz file")]
Folder = Annotated[Path | None, Option("--out", help="Run directory.", parser=folder)]
Again = Annotated[bool, Option("--fresh", help="Make it again even if it exists.")]


@app.command()
def verify(
    ids: Annotated[
        list[str] | None,
        Argument(metavar="ID", help="An id, its beginning, or a pattern with *."),
    ] = None,
    source: Annotated[str | None, Option(help="Only claims of this source.")] = None,
    thorough: Annotated[bool, Option("--thorough", help="Larger sizes, longer.")] = False,
    seed: Annotated[int, Option(help="Seed of all random instances.")] = 0,
    jobs: Annotated[int | None, Option(help="Processes; default: all cores.")] = None,
    evidence: Annotated[bool, Option("--show", help="Print all evidence.")] = False,
    everything: Annotated[bool, Option("--all", help="Also list unchecked claims.")] = False,
    pictures: Annotated[
        bool, Option("--pictures", help="Draw the pictures of all sources or one, check nothing.")
    ] = False,
    out: Annotated[
        Path | None,
        Option(help="Folder for the pictures.", show_default="results/theory", parser=folder),
    ] = None,
    results: Annotated[
        Path | None,
        Option(help="Where `run` and `reproduce` stored their results.", show_default="results"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Check the claims of the sources: one theorem by its number, or all.

    A claim about training is decided by an experiment; its stored verdict is shown.
    """
    from ..claims.verifying import UNCHECKED
    from . import verbs
    from .console import print_evidence, print_verification

    if pictures:
        asked: dict[str, Any] = {
            "--thorough": thorough,
            "--seed": seed,
            "--jobs": jobs,
            "--show": evidence,
        }
        asked |= {"--all": everything, "--results": results}
        for name in (name for name, value in asked.items() if value):
            raise UserError(f"--pictures draws pictures and checks nothing: drop {name}")
        sources = [*(ids or ()), *([] if source is None else [source])]
        return _draw(sources, out or Path("results/theory"), as_json)
    if out is not None:
        raise UserError("--out is the folder of --pictures: add --pictures or drop --out")
    if jobs is not None:
        whole_number("jobs", jobs, least=1)
    whole_number("seed", seed, least=0)
    if results is not None and not results.is_dir():
        raise UserError(
            f"there is no folder {results}: --results takes the folder in which `flatlab run` and "
            "`flatlab reproduce` stored their results"
        )
    found = verbs.verify(
        ids or (),
        source=source,
        seed=seed,
        thorough=thorough,
        workers=jobs,
        results=results,
        progress=not as_json,
    )
    if as_json:
        emit(found.to_dict())
    elif evidence:
        for result in found.results:
            print_evidence(result)
    else:
        print_verification(found, () if ids or everything else UNCHECKED)
    for warning in () if as_json else found.warnings:
        complain(f"warning: passed over: {warning}", DONE)
    if found.left:
        return complain(f"interrupted with {len(found.left)} claims left", INTERRUPTED)
    return CLAIM_FAILED if found.surprises else DONE


def _draw(sources: list[str], folder: Path, as_json: bool) -> int:
    from ..jobs.progress import Waiting
    from ..report import save
    from ..theory.illustration import of_sources
    from ..theory.illustrations import PICTURES
    from .console import print_line

    chosen = of_sources(PICTURES, sources)
    with Waiting("drawing", sum(each.seconds for each in chosen), quiet=as_json) as waiting:
        paths = save((each.make(waiting.say) for each in chosen), folder)
    if as_json:
        emit({"pictures": paths})
    else:
        for path in paths:
            print_line(f"picture: {path}")
    return DONE


@app.command()
def construct(
    name: Annotated[
        str, Argument(help="e.g. memorising:depth=3; see `flatlab list constructions`")
    ],
    data: Data,
    out: Folder = None,
    fresh: Again = False,
    as_json: Json = False,
) -> int:
    """Build a network from a proof and store it as a run, to measure, show or train further."""
    from ..data.catalogue import make
    from ..specs import parse_spec
    from ..theory.constructions import construct as construction_of
    from ..theory.constructions import plain_options
    from . import verbs
    from .from_flags import data_spec

    wanted, options = parse_spec(name)
    for key, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{key} must be finite, got {value}")
    made = make(data_spec(data))
    options = plain_options(wanted, options)
    verbs.require_width(options.get("width"), made, options.get("depth"))
    identity = {"construction": wanted, "options": options}
    path = out or _folder(f"construct-{wanted}", identity, made)
    network = construction_of(wanted, made, options)
    facts = _stored(network, {"construction": wanted, **options}, path, fresh)
    _tell({"construction": wanted, **facts}, as_json)
    return DONE


@app.command()
def flattest(
    arch: Annotated[str, Option(help="no-bias, bias or sim-bn")],
    data: Data,
    width: Annotated[int | None, Option(help="Neurons; by default as needed.")] = None,
    seed: Annotated[int, Option(help="Seed of the search.")] = 0,
    budget: Annotated[str, Option(help="Time for the search: seconds, or e.g. 90s or 2m.")] = "60",
    out: Folder = None,
    fresh: Again = False,
    as_json: Json = False,
) -> int:
    """Find the interpolating network with the smallest trace directly, and store it as a run."""
    from ..data.catalogue import make
    from ..experiments.budget import seconds_of
    from . import verbs
    from .from_flags import data_spec

    whole_number("seed", seed, least=0)
    seconds = seconds_of(_number(budget))
    if width is not None:
        whole_number("width", width, least=1)
    made = make(data_spec(data))
    start: dict[str, Any] = {"flattest": arch, "seed": seed, "budget": seconds}
    start |= {} if width is None else {"width": width}
    path = out or _folder("flattest", start, made)
    family = cast("Family", arch)
    found = verbs.flattest(
        made, family, width=width, seed=seed, budget=seconds, progress=not as_json
    )
    facts = {
        "arch": arch,
        **_stored(found.solution, start, path, fresh),
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


def _number(text: str) -> float | str:
    """Return a number if this is one."""
    try:
        return float(text)
    except ValueError:
        return text


def _folder(name: str, made_from: dict[str, Any], data: Dataset) -> Path:
    """Return the default directory of a network; a digest of what it is made from names it."""
    from ..data import identity
    from ..specs import digest

    named = digest({**made_from, "data": identity(data.spec)})
    return Path("results") / "runs" / f"{name}-{named}"


def _stored(network: Solution, start: dict[str, Any], path: Path, fresh: bool) -> dict[str, Any]:
    """Store a network as a run; return a summary of it."""
    from ..training.session import store_network

    run = store_network(network.arch, network.params, network.data, start, path, fresh=fresh)
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
