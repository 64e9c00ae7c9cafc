"""The one training call: picks engine or torch, logs, checkpoints, resumes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..data import Dataset
from ..data.catalogue import make
from ..engine import evaluate, predict
from ..errors import StoreError, UserError, unknown
from ..files.store import RunStore
from ..losses import Loss, as_loss
from ..models import Architecture, Params, build
from .config import Dtype, RunConfig
from .interrupts import interrupts
from .run import Columns, Run, load_run, phase_ends, read_result, split, start_of, start_table
from .schedule import LogGrid, Phase
from .trainers import Backend, choose, trainer_of

CHUNK_SECONDS = 0.25  # progress, checkpoints and Ctrl-C are looked at this often
CHECKPOINT_SECONDS = 3.0  # unless FLATLAB_CHECKPOINT_SECONDS says otherwise

Report = Callable[[dict[str, Any]], None]


class Track(Protocol):
    """What `tracking.Tracker` is to training."""

    every: int

    def take(self, model: Any, step: int, loss: Any, data: Any) -> Any: ...  # noqa: D102


def train(
    arch: Architecture,
    data: Dataset,
    *,
    schedule: Sequence[Phase],
    loss: str | Loss = "mse",
    seed: int = 0,
    dtype: Dtype = "float32",
    log: LogGrid | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    backend: Backend = "auto",
    report: Report | None = None,
    track: Track | None = None,
    start: str | Path | None = None,
) -> Run:
    """Train a network and return the run.

    Args:
        arch: `TwoLayer` or `Deep`.
        data: The data set.
        schedule: Phases, in order.
        loss: A `Loss` or its name.
        seed: Decides initial weights, sample order and noise.
        dtype: "float32" or "float64".
        log: At which epochs to measure.
        out: Run directory. What is there of the same run is continued or, if finished, returned.
        fresh: Start again even if `out` holds this run.
        backend: "auto" takes the compiled engine where it can and torch elsewhere, with a note.
        report: Called a few times a second with {"epoch", "epochs", "train_loss", ...}.
        track: A `Tracker`: measures at those log points whose epoch is a multiple of its `every`,
            as far as this call trains; the tracker keeps what it read.
        start: Directory of a run whose final parameters to begin with, instead of drawn ones.
    """
    config = RunConfig(
        arch=arch,
        data=data.spec,
        schedule=tuple(schedule) if isinstance(schedule, Sequence) else schedule,
        loss=as_loss(loss),
        seed=seed,
        dtype=dtype,
        log=log or LogGrid(),
        start=None if start is None else start_table(start),
    )
    return run_config(
        config, data=data, out=out, fresh=fresh, backend=backend, report=report, track=track
    )


def run_config(
    config: RunConfig,
    *,
    data: Dataset | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    backend: Backend = "auto",
    report: Report | None = None,
    track: Track | None = None,
    start: Params | None = None,
) -> Run:
    """Train what a configuration says; see `train`.

    `start` has the parameters of a configuration that starts from a construction.
    """
    if backend not in get_args(Backend):
        raise unknown("backend", str(backend), get_args(Backend))
    data = make(config.data) if data is None else data
    for phase in config.schedule:
        if phase.batch_size is not None and phase.batch_size > data.n:
            raise UserError(
                f"batch_size must be <= n = {data.n}, got {phase.batch_size}: "
                f"leave it out for the full batch"
            )
    config.check_size(data.d)
    if config.loss.name == "logistic" and np.abs(data.y_train).max() > 1:
        raise UserError(
            f"the logistic loss takes labels between -1 and 1, got {np.abs(data.y_train).max():g}: "
            "use mse, or labels -1 and 1"
        )
    largest = max(float(np.abs(part).max()) for part in (data.x_train, data.x_test) if part.size)
    if config.dtype == "float32" and largest > 1e15:
        raise UserError(
            f"inputs reach {largest:g}, whose squares float32 does not hold: rescale them, or use "
            "dtype 'float64'"
        )
    patience = _checkpoint_seconds()
    with contextlib.ExitStack() as stack:
        interrupted = stack.enter_context(interrupts())
        stack.enter_context(threadpool_limits(1))
        begin, store = _start(config, data, start), None
        if out is not None:
            store = RunStore.open(out, config.to_dict(), fresh=fresh)
            stack.enter_context(store.lock())
            result = read_result(store)
            if result and result["status"] in ("done", "diverged"):
                with contextlib.suppress(StoreError):  # a damaged end is trained again
                    if store.load_history() is not None:
                        return dataclasses.replace(load_run(out), data=data)
        session = _Session(config, data, store, begin, backend, patience)
        session.report = report or session.report
        session.track = track
        return session.run(interrupted)


def on_test_set(run: Run, data: Dataset) -> dict[str, float]:
    """Return what the history would hold of a run's final parameters with other test points."""
    return _measure(run.config, run.params, data)


def outputs_on_test_set(run: Run) -> NDArray[np.floating[Any]]:
    """Return the outputs of a run's final network on its test set."""
    data = run.dataset()
    return predict(run.config.arch, run.params, data.x_train, data.x_test)


def run_job(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Train one configuration into its directory: the executor's target.

    The payload is {"config": ..., "out": directory, "fresh": bool}.
    """
    config = RunConfig.from_dict(payload["config"])
    run = run_config(config, out=payload["out"], fresh=payload["fresh"], report=report)
    return {**run.result(), "path": str(payload["out"])}


def _checkpoint_seconds() -> float:
    """Return the time between two checkpoints, shorter or longer as the disk may want it."""
    text = os.environ.get("FLATLAB_CHECKPOINT_SECONDS", str(CHECKPOINT_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UserError(f"FLATLAB_CHECKPOINT_SECONDS must be a number >= 0, got {text!r}")
    return seconds


def _start(config: RunConfig, data: Dataset, given: Params | None) -> Params:
    """Draw, read or take the initial weights; a loss not finite there is the caller's mistake."""
    drawn = given
    if config.start is not None and "run" in config.start:
        drawn = start_of(config.start)
    elif drawn is None and config.start is not None:
        raise UserError(
            f"a run that starts from {dict(config.start)} is made by `flatlab construct` or "
            "`flatlab flattest`; to train on from it, start from its directory"
        )
    elif drawn is None:
        drawn = config.arch.initial(data.d, config.seed)
    expected = config.arch.shapes(data.d)
    if {name: np.shape(value) for name, value in drawn.items()} != expected:
        raise UserError(
            f"the start does not fit the architecture on {data.d} inputs: expected {expected}, got "
            f"{ {name: np.shape(value) for name, value in drawn.items()} }"
        )
    with np.errstate(over="ignore"):
        params: Params = {name: value.astype(config.dtype) for name, value in drawn.items()}
    row = _measure(config, params, data)
    if not np.isfinite(list(row.values())).all():
        raise UserError(f"the loss is not finite at the initial weights: {row}")
    return params


def _measure(config: RunConfig, params: Params, data: Dataset) -> dict[str, float]:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # the caller looks
        return evaluate(config.arch, params, config.loss, data)


class _Session:
    """One sitting of a run: from its start, or its last checkpoint, to its end or an interrupt."""

    def __init__(
        self,
        config: RunConfig,
        data: Dataset,
        store: RunStore | None,
        params: Params,
        backend: Backend,
        patience: float,
    ):
        self.config, self.data, self.store = config, data, store
        self.report: Report = lambda info: None
        self.patience = patience  # seconds between two checkpoints
        self.notes: list[str] = []
        self.rows: list[dict[str, float]] = []
        self.ends: list[Params] = []
        self.phase, self.unit, self.before = 0, 0, 0.0
        velocity: Params = {}
        checkpoint = store.load_checkpoint() if store else None
        if checkpoint:
            columns, params, velocity = split(checkpoint)
            self.rows = [
                dict(zip(columns, values, strict=True))
                for values in zip(*(c.tolist() for c in columns.values()), strict=True)
            ]
            self.notes += checkpoint.warnings
            self.phase, self.unit = checkpoint.meta["phase"], checkpoint.meta["unit"]
            self.before = checkpoint.meta["seconds"]
            self.ends = list(phase_ends(checkpoint))
        self.kind, note = choose(backend, config)
        self.notes += note
        self.trainer = trainer_of(self.kind, config, params, data)
        self.trainer.load(params, velocity)
        begun = checkpoint.meta.get("trainer", self.kind) if checkpoint else self.kind
        if begun != self.kind:  # a unit of one is not a unit of the other
            raise UserError(
                f"this run was begun with backend {begun!r}, not {self.kind!r}: "
                f"continue it with that one, or start again with --fresh"
            )
        self.started = self.saved = time.monotonic()

    def run(self, interrupted: threading.Event) -> Run:
        """Advance to the end, an interrupt or divergence."""
        schedule = self.config.schedule
        starts = np.cumsum([0, *(phase.epochs for phase in schedule)]).tolist()
        logged = self.config.log.epochs(schedule)
        self._log(starts[self.phase], 0, logged)
        while self.phase < len(schedule):
            if not self._advance_phase(schedule[self.phase], starts, logged, interrupted):
                return self._end("interrupted")
            if self.diverged_at is not None:
                return self._end("diverged")
            self.phase, self.unit = self.phase + 1, 0
            if self.phase < len(schedule):
                self.ends.append(self.trainer.params())
        return self._end("done")

    diverged_at: int | None = None
    track: Track | None = None

    def _advance_phase(
        self,
        phase: Phase,
        starts: list[int],
        logged: list[int],
        interrupted: threading.Event,
    ) -> bool:
        """Run a phase from `self.unit`; return False if interrupted before its end."""
        epoch0, per_epoch = starts[self.phase], self.trainer.units_per_epoch(phase)
        end, chunk = phase.epochs * per_epoch, 1
        stops = [(e - epoch0) * per_epoch for e in logged if epoch0 < e <= epoch0 + phase.epochs]
        while self.unit < end and self.diverged_at is None:
            if interrupted.is_set():
                return False
            stop = min(self.unit + chunk, next(s for s in stops if s > self.unit))
            before, clock = self._state(), time.monotonic()
            failed = self.trainer.advance(phase, self.unit, stop, epoch0)
            if failed >= 0 or not self._finite():
                self._rewind(phase, before, epoch0)
                self.diverged_at = epoch0 + self.unit // per_epoch
                return True
            elapsed = max(time.monotonic() - clock, 1e-6)
            chunk = max(1, min(int((stop - self.unit) * CHUNK_SECONDS / elapsed), 2 * chunk))
            self.unit = stop
            self._log(epoch0, per_epoch, logged)
            self._tell(epoch0 + self.unit / per_epoch)
            if time.monotonic() - self.saved > self.patience:
                self._save()
        return True

    def _finite(self) -> bool:
        return all(np.isfinite(p).all() for p in self.trainer.params().values())

    def _state(self) -> tuple[Params, Params]:
        return self.trainer.params(), self.trainer.velocity()

    def _rewind(self, phase: Phase, before: tuple[Params, Params], epoch0: int) -> None:
        """Replay a diverged chunk to its last finite state, the same whatever the chunks were.

        An update may overflow one unit or more before an output does, so every unit is looked at.
        """
        self.trainer.load(*before)
        while self.trainer.advance(phase, self.unit, self.unit + 1, epoch0) < 0 and self._finite():
            before = self._state()
            self.unit += 1
        self.trainer.load(*before)

    def _log(self, epoch0: int, per_epoch: int, logged: list[int]) -> None:
        """Measure if the state is at the end of an epoch to log that has not been logged."""
        epoch, inside = divmod(self.unit, per_epoch) if per_epoch else (0, self.unit)
        done = self.rows[-1]["epoch"] if self.rows else -1
        if inside == 0 and epoch0 + epoch > done and epoch0 + epoch in logged:
            row = _measure(self.config, self.trainer.params(), self.data)
            if not np.isfinite(list(row.values())).all():
                self.diverged_at = epoch0 + epoch
                return
            self.rows.append({"epoch": epoch0 + epoch, **row})
            self._follow(epoch0 + epoch)

    def _follow(self, epoch: int) -> None:
        """Let the tracker measure the network as it is."""
        if self.track is not None and epoch % self.track.every == 0:
            net = build(self.config.arch, self.trainer.params(), self.data.x_train)
            self.track.take(net, epoch, self.config.loss, self.data)

    def _tell(self, epoch: float) -> None:
        last = {name: value for name, value in self.rows[-1].items() if name != "epoch"}
        self.report({"epoch": epoch, "epochs": self.config.epochs, **last})

    def _seconds(self) -> float:
        return self.before + time.monotonic() - self.started

    def _columns(self) -> Columns:
        columns = {name: np.array([row[name] for row in self.rows]) for name in self.rows[0]}
        columns["epoch"] = columns["epoch"].astype(np.int64)
        return columns

    def _save(self) -> None:
        if self.store:
            tensors = {f"history/{name}": column for name, column in self._columns().items()}
            tensors |= {f"params/{name}": value for name, value in self.trainer.params().items()}
            velocity = self.trainer.velocity()
            tensors |= {f"velocity/{name}": value for name, value in velocity.items()}
            for k, params in enumerate(self.ends):
                tensors |= {f"ends/{k}/{name}": value for name, value in params.items()}
            meta: dict[str, Any] = {"phase": self.phase, "unit": self.unit, "trainer": self.kind}
            meta |= {"seconds": self._seconds(), "order": list(tensors)}
            self.store.save_checkpoint(tensors, meta)
        self.saved = time.monotonic()

    def _end(self, status: str) -> Run:
        if status == "diverged":
            self.notes.append(
                f"the loss stopped being finite in epoch {self.diverged_at}: "
                f"try a smaller lr{' or rho' if self.config.schedule[self.phase].rho else ''}; "
                "history and parameters are the last finite ones"
            )
        self._save()
        run = Run(
            config=self.config,
            columns=self._columns(),
            params=self.trainer.params(),
            status=status,
            seconds=self._seconds(),
            notes=tuple(self.notes),
            diverged_at=self.diverged_at,
            path=self.store.path if self.store else None,
            data=self.data,
            ends=tuple(self.ends),
        )
        if self.store:
            self.store.save_history(run.columns)
            self.store.save_result(run.result())
        return run
