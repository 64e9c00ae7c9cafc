"""What a notebook or a script calls: `fl.run`, `fl.reproduce`, `fl.verify` and more.

Each is the command of the same name without its printing: it shows progress and returns an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, require_path, shown, truth, whole_number
from ..training.run import Run

if TYPE_CHECKING:
    from ..claims.verifying import Verification
    from ..data import Dataset
    from ..experiments.results import Results
    from ..theory.columns import Family
    from ..theory.flattest import Flattest


def run(
    ids: str | Sequence[str],
    preset: str = "lab",
    *,
    seeds: int | None = None,
    out: str | Path = "results",
    budget: float | str | None = None,
    workers: int | None = None,
    fresh: bool = False,
    changes: Mapping[str, Any] | None = None,
    formats: str = "png",
    progress: bool = True,
    engine: str = "local",
    address: str | None = None,
    cpus_per_job: float | None = None,
    gpus_per_job: float | None = None,
    retries: int | None = None,
    timeout: float | str | None = None,
    fail_fast: bool = False,
    retry_failed: bool = False,
) -> Results:
    """Run experiments: train what is missing, judge the claims, draw the pictures.

    Args:
        ids: Ids of experiments, as `flatlab list experiments` lists them, or sources for all their
            experiments.
        preset: "quick", "lab" or "paper".
        seeds: Number of seeds; by default from the preset.
        out: Folder for results.
        budget: Seconds for training, or a text such as "30m"; None for no limit.
        workers: Runs at a time; None is one for each core, 0 runs all in this process.
        fresh: Whether to run finished work again.
        changes: Setting → value; applies to the experiments that have the setting.
        formats: Formats of pictures: png, pdf, svg, with commas.
        progress: Whether to show the time left.
        engine: "local" for processes of this machine, or "ray".
        address: HOST:PORT of a Ray cluster; None starts one on this machine.
        cpus_per_job: CPUs that Ray reserves for a run; by default 1.
        gpus_per_job: GPUs for a run on Ray, for instance 0.25; by default none.
        retries: Restarts of a run whose process or node died; by default 3 on Ray, otherwise 0.
        timeout: Seconds for one run, or a text such as "2h"; None for no limit.
        fail_fast: Whether the first run that fails stops the others, which save.
        retry_failed: Whether runs that failed by themselves are retried, too.
    """
    from .. import experiments, report
    from ..experiments.budget import seconds_of
    from ..jobs.progress import JobProgress
    from .engines import care_of, workers_of

    wanted = report.formats_of(formats)
    seconds = None if budget is None else seconds_of(budget)
    named = ids if isinstance(ids, str) else _names(ids, "experiments")
    _require_name("preset", preset, "'quick', 'lab' or 'paper'")
    _require_changes(changes)
    out = require_path("out", out, "a folder")
    fresh, progress = truth("fresh", fresh), truth("progress", progress)
    with JobProgress(quiet=not progress) as bars:
        results = experiments.run(
            named,
            preset,
            out=out,
            seeds=seeds,
            changes=changes,
            workers=workers_of(engine, workers, address, cpus_per_job, gpus_per_job),
            care=care_of(engine, retries, timeout, fail_fast, retry_failed),
            budget=seconds,
            fresh=fresh,
            on_plan=bars.expect,
            on_event=lambda job, kind, info: bars.update(job.name, kind, info),
            on_analysis=lambda id: bars.say(f"analysing {id}"),
        )
    if results.status != "interrupted":
        report.publish(results, wanted)
    return results


def reproduce(source: str, preset: str = "lab", **options: Any) -> Results:
    """Run every experiment of a source; other options are those of `run`."""
    _require_name("source", source, "the name of a source, as ids begin with")
    return run(source, preset, **options)


def verify(
    ids: str | Sequence[str] = (),
    *,
    source: str | None = None,
    seed: int = 0,
    thorough: bool = False,
    workers: int | None = None,
    results: str | Path | None = None,
    progress: bool = True,
) -> Verification:
    """Check claims of the sources.

    Args:
        ids: Ids, as `flatlab list claims` lists them, their beginnings, or patterns with *; none
            for every claim.
        source: Only claims of this source.
        seed: Decides all random instances.
        thorough: Whether to use larger sizes.
        workers: Processes at a time; None is one for each core, 1 checks in this process.
        results: Folder of results, for claims that an experiment decides; by default "results", if
            there is one.
        progress: Whether to show the time left.
    """
    from ..claims import verifying
    from ..jobs.progress import CheckProgress

    named = (ids,) if isinstance(ids, str) else _names(ids, "claims")
    if source is not None:
        _require_name("source", source, "the name of a source, as ids begin with")
    if results is not None:
        results = require_path("results", results, "a folder")
    thorough, progress = truth("thorough", thorough), truth("progress", progress)
    folder = Path("results" if results is None else results)
    if results is not None and not folder.is_dir():
        raise UserError(
            f"there is no folder {folder}: give the folder in which `run` stored results"
        )
    chosen = verifying.select(named, source)
    with CheckProgress(verifying.checks_of(chosen), quiet=not progress) as bars:
        return verifying.verify(chosen, seed, thorough, workers, bars.update, folder)


def construct(
    name: str,
    data: Dataset | Sequence[Any],
    *,
    out: str | Path | None = None,
    fresh: bool = False,
    **options: Any,
) -> Run:
    """Build a network from a proof; return it as a run of no epochs, in memory unless `out` is set.

    Args:
        name: A construction; `flatlab list constructions` lists them.
        data: The data set that it solves, or its arrays, (x, y) or (x, y, x_test, y_test).
        out: Directory to store the run in.
        fresh: Whether to make it again if it is there.
        options: Options of the construction.

    >>> import flatlab as fl
    >>> made = fl.construct("four-neurons", fl.data.xor(d=30, n=100))
    >>> round(made.final["trace"], 4)  # 4√31
    22.2711
    """
    from ..data.arrays import as_dataset
    from ..theory.constructions import construct as construction_of
    from ..theory.constructions import plain_options
    from ..training.session import store_network

    _require_name("name", name, "a construction such as 'memorising'")
    data, fresh = as_dataset(data), truth("fresh", fresh)
    if out is not None:
        out = require_path("out", out, "a directory")
    plain = plain_options(name, options)
    require_width(plain.get("width"), data, plain.get("depth"))
    made = construction_of(name, data, options)
    return store_network(
        made.arch, made.params, data, {"construction": name, **plain}, out, fresh=fresh
    )


def flattest(
    data: Dataset | Sequence[Any],
    family: Family,
    *,
    width: int | None = None,
    seed: int = 0,
    budget: float | str = 60.0,
    progress: bool = True,
) -> Flattest:
    """Search for the interpolating two-layer network of least trace.

    Args:
        data: The training set, or its arrays (x, y).
        family: "no-bias", "bias" or "sim-bn".
        width: Neurons; by default as many as needed.
        seed: Seed of the search.
        budget: Seconds for the search, or a text such as "1m".
        progress: Whether to show the time left.
    """
    from ..data.arrays import as_dataset
    from ..experiments.budget import seconds_of
    from ..jobs.progress import Waiting
    from ..theory.flattest import flattest as find

    data, seconds = as_dataset(data), seconds_of(budget)
    seed, progress = whole_number("seed", seed, least=0), truth("progress", progress)
    require_width(width, data)
    with Waiting("searching", seconds, quiet=not progress) as waiting:
        return find(
            data,
            family,
            width=width,
            seed=seed,
            budget_seconds=seconds,
            progress=waiting.say,
        )


def require_width(width: object, data: Dataset, depth: object = None) -> None:
    """Refuse a network of the theory that does not fit into memory; None is the least width."""
    from ..models import Deep, TwoLayer
    from ..training.config import require_room

    if width is None:
        return
    neurons = whole_number("width", width, least=1)
    layers = 2 if depth is None else whole_number("depth", depth, least=2)
    arch = TwoLayer(width=neurons) if layers == 2 else Deep(depth=layers, width=neurons)
    require_room(arch.size(data.shape, 1) or 0)


def _names(given: object, kind: str) -> tuple[str, ...]:
    """Return several ids as a tuple."""
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, bytes) else (0,)
    for name in names:
        if not isinstance(name, str):
            wrong = shown(given) if names == (0,) else f"{name!r} among them"
            raise UserError(
                f"ids must be an id or a list of ids, got {wrong}: `flatlab list {kind}` lists them"
            )
    return names


def _require_name(what: str, given: object, wanted: str) -> None:
    if not isinstance(given, str):
        raise UserError(f"{what} must be {wanted}, got {shown(given)}")


def _require_changes(given: object) -> None:
    """Refuse changes that are no table of settings."""
    if given is not None and not isinstance(given, Mapping):
        raise UserError(
            f"changes must be a dict such as {{'width': 50}}, setting → value, got {shown(given)}"
        )
    for name in given or ():
        if not isinstance(name, str):
            raise UserError(f"the settings in changes are named by strings, got {name!r}")
