"""The one training call: picks engine or torch, logs, checkpoints, resumes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Mapping, Sequence
from os.path import exists
from pathlib import Path
from typing import Any, get_args

from threadpoolctl import threadpool_limits

from ..data import Dataset
from ..data.arrays import as_dataset
from ..data.catalogue import make
from ..errors import StoreError, UserError, require_path, truth, unknown, whole
from ..files.store import CONFIG, RunStore
from ..losses import Loss, as_loss
from ..models import Architecture, Params
from ..outside.functions import Report, require_report
from ..randomness import global_states_kept
from .beginning import check_data, initial_state, require_kind, seconds_between_checkpoints
from .config import Dtype, RunConfig, config_digest, tracked, upgraded
from .interrupts import interrupts
from .run import OVER, Run, changed_code, load_run, mend, require_own, start_table, versions
from .schedule import LogGrid, Phase
from .sitting import Sitting, Track
from .trainers import TrainerChoice, choose_trainer

CHECKPOINT_SECONDS = 3.0  # unless FLATLAB_CHECKPOINT_SECONDS says otherwise


def train(
    arch: Architecture,
    data: Dataset | Sequence[Any],
    *,
    schedule: Phase | Sequence[Phase],
    loss: str | Loss = "mse",
    seed: int = 0,
    dtype: Dtype = "float32",
    log: LogGrid | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    backend: TrainerChoice = "auto",
    report: Report | None = None,
    track: Track | None = None,
    start: str | Path | None = None,
    measures: Any = (),
    device: str = "cpu",
    threads: int | None = None,
    progress: bool | None = None,
) -> Run:
    """Train a network and return the run.

    Args:
        arch: A spec of `flatlab.models`.
        data: The data set, or its arrays or tensors: (x, y) or (x, y, x_test, y_test). Labels of a
            loss of classes, as cross_entropy, are classes from 0 to the largest.
        schedule: Phases, in order, or a single one.
        loss: A `Loss` or its name.
        seed: Decides initial weights, sample order and noise.
        dtype: "float32" or "float64".
        log: At which epochs to measure.
        out: Run directory. What is there of the same run is continued or, if finished, returned.
        fresh: Start again even if `out` holds this run.
        backend: "auto" takes the compiled engine where it can and torch elsewhere, with a note.
        report: Called a few times a second with {"epoch", "epochs", "train_loss", ...}.
        track: A `Tracker`: measures at those log points of this call whose epoch is a multiple of
            its `every`. The readings stay in the tracker, not in the run.
        start: Directory of a run whose final parameters to begin with, instead of drawn ones.
        measures: What to measure at every log point and keep in the history: names, or `Tracked`.
        device: "cpu" or "cuda", for torch.
        threads: Threads for torch and BLAS; None is one. Results may differ in their last bits.
        progress: Show the time left: on a terminal, in a notebook, or as lines of a log on stderr.
            None shows it unless `report` is given, or this is a worker process.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM came. What is done is saved in `out` first.
    """
    loss = as_loss(loss)
    data = as_dataset(data, loss.labels == "classes")
    require_kind("log", log, LogGrid | None, "a LogGrid")
    if start is not None:
        require_path("start", start, "the directory of a run")
    phases: Any = [schedule] if isinstance(schedule, Phase) else schedule
    config = RunConfig(
        arch=arch,
        data=data.spec,
        schedule=tuple(phases) if isinstance(phases, Sequence) else phases,
        loss=loss,
        seed=seed,
        dtype=dtype,
        log=log or LogGrid(),
        start=None if start is None else start_table(start),
        measures=tracked(measures),
    )
    with global_states_kept():  # importing rich draws random numbers
        from ..outside.progress import TrainProgress, drawn
    with interrupts() as stop, drawn(TrainProgress, progress, report) as tell:
        run = run_config(
            config, data=data, out=out, fresh=fresh, backend=backend, report=tell, track=track,
            device=device, threads=threads, stop=stop,
        )  # fmt: skip
    if stop.is_set():  # even if the run was over before: a loop around it must end too
        raise KeyboardInterrupt(_how_far(run))
    return run


def _how_far(run: Run) -> str:
    """Say where an interrupt struck and how to go on."""
    where = f"{run.status} at epoch {int(run.columns['epoch'][-1])} of {run.config.epochs}"
    if run.path is None:
        return f"{where}; nothing is stored: give `out` a directory to continue a run"
    return f"{where}; {run.path} has it: the same call continues"


def run_config(
    config: RunConfig,
    *,
    data: Dataset | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    backend: TrainerChoice = "auto",
    report: Report | None = None,
    track: Track | None = None,
    start: Params | None = None,
    device: str = "cpu",
    threads: int | None = None,
    stop: threading.Event | None = None,
) -> Run:
    """Train what a configuration says; see `train`.

    `start` has the parameters of a configuration that starts from a construction. A run stops
    between two chunks when `stop` is set, by default by Ctrl-C or SIGTERM, and is returned with the
    status "interrupted", which the caller reports.
    """
    if out is not None:
        out = require_path("out", out, "a directory")
    fresh = truth("fresh", fresh)
    require_report(report)
    require_kind("track", track, Track | None, "a Tracker such as flatlab.Tracker('lambda_max')")
    if backend not in get_args(TrainerChoice):
        raise unknown("backend", str(backend), get_args(TrainerChoice))
    data = make(config.data) if data is None else data
    for phase in config.schedule:
        if phase.batch_size is not None and phase.batch_size > data.n:
            raise UserError(
                f"batch_size must be <= n = {data.n}, got {phase.batch_size}: "
                f"leave it out for the full batch"
            )
    config.check_size(data.shape, data.outputs)
    check_data(config, data)
    kind, _ = choose_trainer(backend, config)
    if kind == "torch" or device != "cpu":
        from .torch_trainer import require_device

        require_device(device)
    patience = seconds_between_checkpoints(CHECKPOINT_SECONDS)
    threads = 1 if threads is None else whole(threads)
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024:
        raise UserError(f"threads must be a whole number from 1 to 1024, got {threads!r}")
    with contextlib.ExitStack() as stack:
        interrupted = stop or stack.enter_context(interrupts())
        stack.enter_context(threadpool_limits(threads))
        begin = initial_state(config, data, start)
        sitting = functools.partial(
            Sitting, config, data, begin, backend, patience, device, report, track
        )
        if out is None:
            return sitting().run(interrupted)
        # A first row that cannot be measured leaves no directory behind.
        first = sitting() if fresh or not exists(Path(out, CONFIG)) else None
        if first is not None:
            first.log_start()
        store = RunStore.open(
            out, config.to_dict(), fresh=fresh, digest_of=config_digest, upgrade=upgraded
        )
        stack.enter_context(store.lock())
        store.rehearse()
        versions()
        checkpoint = store.load_checkpoint()
        if checkpoint is not None:
            require_own(store, config, checkpoint)
        with contextlib.suppress(StoreError):  # a damaged end is trained again
            if checkpoint is not None and load_run(out).status in OVER:
                mend(store, checkpoint)
                found = load_run(out)
                notes = (*found.notes, *changed_code(config, found.code))
                return dataclasses.replace(found, data=data, notes=notes)
        if first is None or checkpoint is not None:
            first = sitting(store=store)
        first.store = store
        return first.run(interrupted)


def store_network(
    arch: Architecture, params: Mapping[str, Any], data: Dataset, start: Mapping[str, Any],
    out: str | Path | None, fresh: bool = False,
) -> Run:  # fmt: skip
    """Store a given network as a run of no epochs, in float64; `start` says where it comes from."""
    config = RunConfig(arch=arch, data=data.spec, schedule=(), dtype="float64", start=start)
    return run_config(config, data=data, out=out, fresh=fresh, start=dict(params))


def run_job(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Train one configuration into its directory: the target of its job.

    The payload is {"config": ..., "out": directory, "fresh": bool}; "device" is that of
    `run_config`, by default "cpu".
    """
    config = RunConfig.from_dict(payload["config"])
    options = {"out": payload["out"], "fresh": payload["fresh"], "report": report}
    run = run_config(config, device=payload.get("device", "cpu"), **options)
    return {**run.result(), "path": str(payload["out"])}
