"""One sitting of a run: it advances, logs, checkpoints and ends."""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..data import Dataset
from ..errors import UserError
from ..files.store import RunStore
from ..models import Params
from ..models.contract import State, part
from ..outside.functions import Report
from .config import RunConfig
from .rows import row_of, tracked_row
from .run import Columns, Run, arrays_of, changed_code, phases_over
from .schedule import Phase, Until
from .trainers import TrainerChoice, choose_trainer, finite, labelled, trainer_of

CHUNK_SECONDS = 0.25  # progress, checkpoints and Ctrl-C are looked at this often


@runtime_checkable
class Track(Protocol):
    """What training needs of a tracker; the loss and data are the run's, for one without any."""

    every: int

    def take(self, model: Any, step: int, loss: Any, data: Any) -> Any: ...  # noqa: D102


class Sitting:
    """One sitting of a run: from its start, or its last checkpoint, to its end or an interrupt."""

    def __init__(
        self,
        config: RunConfig,
        data: Dataset,
        state: State,
        backend: TrainerChoice,
        patience: float,
        device: str,
        report: Report | None = None,
        track: Track | None = None,
        store: RunStore | None = None,
    ):
        self.config, self.data, self.store = config, data, store
        self.report: Report = report or (lambda info: None)
        self.track = track
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
            self.notes += changed_code(config, checkpoint.meta.get("code"))
            self.phase, self.unit = checkpoint.meta["phase"], checkpoint.meta["unit"]
            self.before = checkpoint.meta["seconds"]
            starts = checkpoint.meta.get("starts", self._starts_of_format_1())
            self.starts = [tuple(pair) for pair in starts]
            over = range(phases_over(checkpoint))
            self.ends = [arrays_of(checkpoint, f"ends/{k}/") for k in over]
        self.code = checkpoint.meta.get("code") if checkpoint else config.arch.code()
        self.kind, note = choose_trainer(backend, config)
        self.notes += note
        self.trainer = trainer_of(self.kind, config, state, data, device)
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

    def log_start(self) -> None:
        """Log the initial weights, unless that is done."""
        if not self.rows:
            self._log(0, 0)
            if self.diverged_at is not None:
                raise UserError("the loss is not finite at the initial weights: start from others")

    def run(self, interrupted: threading.Event) -> Run:
        """Advance to the end, an interrupt, a missed target or divergence."""
        schedule, status = self.config.schedule, "done"
        logged = set(self.config.log.epochs(schedule))
        self.log_start()
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

        A phase without a target ends as "done", one with a target as "reached" or "missed".
        """
        epoch0, per_epoch = self.starts[self.phase][0], self.trainer.units_per_epoch(phase)
        end, chunk, until = phase.epochs * per_epoch, 1, phase.until
        marks = sorted(e - epoch0 for e in logged if 0 < e - epoch0 < phase.epochs)
        while self.unit < end:
            if interrupted.is_set():
                return "interrupted"
            look = _next_look(phase, marks, self.unit // per_epoch)
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

    def _reached(self, until: Until, epoch: int, phase: Phase) -> bool:
        """Return whether a phase is at its target after this epoch."""
        if epoch % until.every and epoch != phase.epochs:
            return False
        return until.reached(row_of(self.config, self.trainer, self.data))

    def _now(self, phase: Phase) -> tuple[int, int]:
        """Return the epochs and the steps that are done, at the end of an epoch of a phase."""
        epochs, steps = self.starts[self.phase]
        done = self.unit // self.trainer.units_per_epoch(phase)
        return epochs + done, steps + phase.steps(self.data.n, done)

    def _rewind(self, phase: Phase, before: State, epoch0: int) -> None:
        """Replay a diverged chunk to its last finite state, which is the same for any chunk size.

        An update may overflow one or more units before an output does, so each unit is checked.
        """
        self.trainer.load(before)
        while self.trainer.advance(phase, self.unit, self.unit + 1, epoch0) < 0 and finite(
            self.trainer.state()
        ):
            before = self.trainer.state()
            self.unit += 1
        self.trainer.load(before)

    def _log(self, epoch: int, step: int) -> None:
        """Add a row to the history unless its epoch has one; a row not finite means divergence."""
        if self.rows and self.rows[-1]["epoch"] >= epoch:
            return
        row = row_of(self.config, self.trainer, self.data)
        if not np.isfinite(list(row.values())).all():
            self.diverged_at = epoch
            return
        if self.config.measures:
            row |= tracked_row(self.config, self.trainer.module(), self.data)
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

    def _save(self, result: dict[str, Any] | None = None) -> None:
        """Save a checkpoint; with a result, the last one of a sitting."""
        if self.store:
            tensors = labelled("history", self._columns())
            tensors |= self.trainer.state()
            for k, params in enumerate(self.ends):
                tensors |= labelled(f"ends/{k}", params)
            meta: dict[str, Any] = {"phase": self.phase, "unit": self.unit, "trainer": self.kind}
            meta |= {"seconds": self._seconds(), "order": list(tensors), "starts": self.starts}
            meta |= {} if self.code is None else {"code": self.code}
            meta |= {"config": self.config.digest()} | ({"result": result} if result else {})
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
        result = run.result()
        self._save(result)
        if self.store:
            self.store.save_history(run.columns)
            self.store.save_result(result)
        return run


def _next_look(phase: Phase, marks: Sequence[int], done: int) -> int:
    """Return the first epoch of a phase to look at after those that are done; the last is one.

    `marks` are the epochs to log, in order. Targets are looked at every few epochs.
    """
    after = bisect.bisect_right(marks, done)
    looks = [phase.epochs, *marks[after : after + 1]]
    if phase.until is not None:
        looks.append((done // phase.until.every + 1) * phase.until.every)
    return min(looks)
