"""The one training call: picks engine or torch, logs, checkpoints, resumes."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from ..data import Dataset
from ..data.catalogue import make
from ..errors import StoreError, UserError, unknown
from ..files.store import RunStore
from ..losses import Loss, as_loss
from ..models import Architecture, Params
from .beginning import check_data, initial_state, seconds_between_checkpoints
from .config import Dtype, RunConfig, config_digest, tracked, upgraded
from .following import Following
from .interrupts import interrupts
from .rows import row_of
from .run import OVER, Columns, Run, arrays_of, load_run, phases_over, read_result, start_table
from .schedule import LogGrid, Phase, Until
from .trainers import State, TrainerChoice, choose, finite, labelled, part, trainer_of

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
    backend: TrainerChoice = "auto",
    report: Report | None = None,
    track: Track | None = None,
    start: str | Path | None = None,
    measures: Any = (),
    device: str = "cpu",
    threads: int | None = None,
) -> Run:
    """Train a network and return the run.

    Args:
        arch: A spec of `flatlab.models`.
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
        measures: What to measure at every log point and keep in the history: names, or `Tracked`.
        device: "cpu" or "cuda", for torch.
        threads: Threads for torch and BLAS; None is one. Results may differ in their last bits.
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
        measures=tracked(measures),
    )
    return run_config(
        config, data=data, out=out, fresh=fresh, backend=backend, report=report, track=track,
        device=device, threads=threads,
    )  # fmt: skip


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
) -> Run:
    """Train what a configuration says; see `train`.

    `start` has the parameters of a configuration that starts from a construction.
    """
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
    kind, _ = choose(backend, config)
    if kind == "torch" or device != "cpu":
        from .torch_trainer import require_device

        require_device(device)
    patience = seconds_between_checkpoints(CHECKPOINT_SECONDS)
    if threads is not None and (not isinstance(threads, int) or not 1 <= threads <= 1024):
        raise UserError(f"threads must be a whole number from 1 to 1024, got {threads!r}")
    with contextlib.ExitStack() as stack:
        interrupted = stack.enter_context(interrupts())
        stack.enter_context(threadpool_limits(threads or 1))
        begin, store = initial_state(config, data, start), None
        if out is not None:
            store = RunStore.open(
                out, config.to_dict(), fresh=fresh, digest_of=config_digest, upgrade=upgraded
            )
            stack.enter_context(store.lock())
            result = read_result(store)
            if result and result["status"] in OVER:
                with contextlib.suppress(StoreError):  # a damaged end is trained again
                    if store.load_history() is not None:
                        return dataclasses.replace(load_run(out), data=data)
        session = _Session(config, data, store, begin, backend, patience, device)
        session.report = report or session.report
        session.track = track
        return session.run(interrupted)


def store_network(
    arch: Architecture, params: Mapping[str, Any], data: Dataset, start: Mapping[str, Any],
    out: Path, fresh: bool = False,
) -> Run:  # fmt: skip
    """Store a given network as a run of no epochs, in float64; `start` says where it comes from."""
    config = RunConfig(arch=arch, data=data.spec, schedule=(), dtype="float64", start=start)
    return run_config(config, data=data, out=out, fresh=fresh, start=dict(params))


def run_job(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Train one configuration into its directory: the target of its job.

    The payload is {"config": ..., "out": directory, "fresh": bool}.
    """
    config = RunConfig.from_dict(payload["config"])
    run = run_config(config, out=payload["out"], fresh=payload["fresh"], report=report)
    return {**run.result(), "path": str(payload["out"])}


class _Session:
    """One sitting of a run: from its start, or its last checkpoint, to its end or an interrupt."""

    def __init__(
        self,
        config: RunConfig,
        data: Dataset,
        store: RunStore | None,
        state: State,
        backend: TrainerChoice,
        patience: float,
        device: str,
    ):
        self.config, self.data, self.store = config, data, store
        self.report: Report = lambda info: None
        self.patience = patience  # seconds between two checkpoints
        self.notes: list[str] = []
        self.rows: list[dict[str, float]] = []
        self.ends: list[Params] = []
        self.phase, self.unit, self.before = 0, 0, 0.0
        self.starts = [(0, 0)]  # epochs and steps before each phase so far
        checkpoint = store.load_checkpoint() if store else None
        if checkpoint:
            columns = arrays_of(checkpoint, "history/")
            self.rows = [
                dict(zip(columns, values, strict=True))
                for values in zip(*(c.tolist() for c in columns.values()), strict=True)
            ]
            state = {k: v for k, v in checkpoint.tensors.items() if not k.startswith("history/")}
            self.notes += checkpoint.warnings
            self.phase, self.unit = checkpoint.meta["phase"], checkpoint.meta["unit"]
            self.before = checkpoint.meta["seconds"]
            starts = checkpoint.meta.get("starts", self._starts_of_format_1())
            self.starts = [tuple(pair) for pair in starts]
            over = range(phases_over(checkpoint))
            self.ends = [arrays_of(checkpoint, f"ends/{k}/") for k in over]
        self.kind, note = choose(backend, config)
        self.notes += note
        self.trainer = trainer_of(self.kind, config, state, data, device)
        self.following = Following(config, data, state)
        begun = checkpoint.meta.get("trainer", self.kind) if checkpoint else self.kind
        if begun != self.kind:  # a unit of one is not a unit of the other
            raise UserError(
                f"this run was begun with backend {begun!r}, not {self.kind!r}: "
                f"continue it with that one, or start again with --fresh"
            )
        self.started = self.saved = time.monotonic()

    def _starts_of_format_1(self) -> list[tuple[int, int]]:
        """Return the epochs and steps before each phase so far, without targets to stop at."""
        starts = [(0, 0)]
        for phase in self.config.schedule[: self.phase]:
            epochs, steps = starts[-1]
            starts.append((epochs + phase.epochs, steps + phase.steps(self.data.n)))
        return starts

    diverged_at: int | None = None
    track: Track | None = None

    def run(self, interrupted: threading.Event) -> Run:
        """Advance to the end, an interrupt, a missed target or divergence."""
        schedule, status = self.config.schedule, "done"
        logged = set(self.config.log.epochs(schedule))
        if not self.rows:
            self._log(0, 0)
            if self.diverged_at is not None:
                raise UserError("the loss is not finite at the initial weights: start from others")
        while self.phase < len(schedule):
            phase = schedule[self.phase]
            ended = self._advance_phase(phase, logged, interrupted)
            if ended in ("interrupted", "diverged", "missed"):
                return self._end(ended)
            status = ended
            epochs, steps = self._now(phase)
            self.phase, self.unit = self.phase + 1, 0
            self.starts.append((epochs, steps))
            if self.phase < len(schedule):
                self.ends.append(self.trainer.params())
        return self._end(status)

    def _advance_phase(self, phase: Phase, logged: set[int], interrupted: threading.Event) -> str:
        """Run a phase from `self.unit`; return how it ended.

        "done" is its last epoch without a target; "reached" and "missed" are of a target.
        """
        epoch0, per_epoch = self.starts[self.phase][0], self.trainer.units_per_epoch(phase)
        end, chunk, until = phase.epochs * per_epoch, 1, phase.until
        stops = self._stops(phase, epoch0, logged)
        while self.unit < end:
            if interrupted.is_set():
                return "interrupted"
            look = next(epoch for epoch in stops if epoch * per_epoch > self.unit)
            stop = min(self.unit + chunk, look * per_epoch)
            before, clock = self.trainer.state(), time.monotonic()
            failed = self.trainer.advance(phase, self.unit, stop, epoch0)
            if failed >= 0 or not finite(self.trainer.state()):
                self._rewind(phase, before, epoch0)
                self.diverged_at = epoch0 + self.unit // per_epoch
                return "diverged"
            elapsed = max(time.monotonic() - clock, 1e-6)
            chunk = max(1, min(int((stop - self.unit) * CHUNK_SECONDS / elapsed), 2 * chunk))
            self.unit = stop
            epoch, inside = divmod(self.unit, per_epoch)
            reached = until is not None and inside == 0 and self._reached(until, epoch, phase)
            if inside == 0 and (reached or epoch0 + epoch in logged or epoch == phase.epochs):
                self._log(epoch0 + epoch, self._now(phase)[1])
                if self.diverged_at is not None:
                    return "diverged"
            self._tell(epoch0 + self.unit / per_epoch)
            if reached:
                return "reached"
            if time.monotonic() - self.saved > self.patience:
                self._save()
        return "done" if until is None else "missed"

    def _stops(self, phase: Phase, epoch0: int, logged: set[int]) -> list[int]:
        """Return the epochs of a phase at which to look, in order, its last among them."""
        looks = {phase.epochs, *(e - epoch0 for e in logged if 0 < e - epoch0 <= phase.epochs)}
        if phase.until is not None:
            looks |= set(range(phase.until.every, phase.epochs, phase.until.every))
        return sorted(looks)

    def _reached(self, until: Until, epoch: int, phase: Phase) -> bool:
        """Return whether a phase is at its target after this epoch."""
        if epoch % until.every and epoch != phase.epochs:
            return False
        row = row_of(self.config, self.trainer, self.data)
        return until.reached(row)

    def _now(self, phase: Phase) -> tuple[int, int]:
        """Return the epochs and the steps that are done, at the end of an epoch of a phase."""
        epochs, steps = self.starts[self.phase]
        done = self.unit // self.trainer.units_per_epoch(phase)
        return epochs + done, steps + phase.steps(self.data.n, done)

    def _rewind(self, phase: Phase, before: State, epoch0: int) -> None:
        """Replay a diverged chunk to its last finite state, the same whatever the chunks were.

        An update may overflow one unit or more before an output does, so every unit is looked at.
        """
        self.trainer.load(before)
        while self.trainer.advance(phase, self.unit, self.unit + 1, epoch0) < 0 and finite(
            self.trainer.state()
        ):
            before = self.trainer.state()
            self.unit += 1
        self.trainer.load(before)

    def _log(self, epoch: int, step: int) -> None:
        """Add a row to the history, unless its epoch has one; one that is not finite diverged."""
        if self.rows and self.rows[-1]["epoch"] >= epoch:
            return
        row = row_of(self.config, self.trainer, self.data)
        if not np.isfinite(list(row.values())).all():
            self.diverged_at = epoch
            return
        row |= self.following.read(self.trainer.module()) if self.config.measures else {}
        self.rows.append({"epoch": epoch, "step": step, **row})
        if self.track is not None and epoch % self.track.every == 0:
            self.track.take(self.trainer.module(), epoch, self.config.loss, self.data)

    def _tell(self, epoch: float) -> None:
        last = {name: value for name, value in self.rows[-1].items() if name != "epoch"}
        self.report({"epoch": epoch, "epochs": self.config.epochs, **last})

    def _seconds(self) -> float:
        return self.before + time.monotonic() - self.started

    def _columns(self) -> Columns:
        columns = {name: np.array([row[name] for row in self.rows]) for name in self.rows[0]}
        for name in ("epoch", "step"):
            if name in columns:  # runs of the first format have no steps
                columns[name] = columns[name].astype(np.int64)
        return columns

    def _save(self) -> None:
        if self.store:
            tensors = labelled("history", self._columns())
            tensors |= self.trainer.state() | self.following.state()
            for k, params in enumerate(self.ends):
                tensors |= labelled(f"ends/{k}", params)
            meta: dict[str, Any] = {"phase": self.phase, "unit": self.unit, "trainer": self.kind}
            meta |= {"seconds": self._seconds(), "order": list(tensors), "starts": self.starts}
            self.store.save_checkpoint(tensors, meta)
        self.saved = time.monotonic()

    def _end(self, status: str) -> Run:
        schedule = self.config.schedule
        if status == "diverged":
            self.notes.append(
                f"the loss stopped being finite in epoch {self.diverged_at}: "
                f"try a smaller lr{' or rho' if schedule[self.phase].rho else ''}; "
                "history and parameters are the last finite ones"
            )
        if status == "missed":
            missed = schedule[self.phase]
            self.notes.append(
                f"missed its target, {missed.until and missed.until.describe()}, in the "
                f"{missed.epochs} epochs of phase {self.phase + 1}"
            )
        self._save()
        state = self.trainer.state()
        run = Run(
            config=self.config,
            columns=self._columns(),
            params=part(state, "params"),
            status=status,
            seconds=self._seconds(),
            notes=tuple(self.notes),
            diverged_at=self.diverged_at,
            path=self.store.path if self.store else None,
            data=self.data,
            ends=tuple(self.ends),
            buffers=part(state, "buffers"),
        )
        if self.store:
            self.store.save_history(run.columns)
            self.store.save_result(run.result())
        return run
