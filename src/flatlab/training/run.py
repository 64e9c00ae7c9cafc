"""What training returns: a `Run`, in memory or read back from its directory."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import Dataset
from ..data.catalogue import make
from ..errors import StoreError, UserError
from ..files.store import AGAIN, CONFIG, Checkpoint, RunStore
from ..models import Params, build
from .config import RunConfig

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

STATUSES = ("done", "diverged", "interrupted")
Columns = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A training run.

    Attributes:
        config: What was run.
        columns: The history, one array a column: epoch, train_loss, trace, trace_ggn; with a test
            set test_loss and, for labels ±1, test_error; memorisation; and features where the data
            set knows its relevant coordinates. Runs made before the last two were logged lack them.
        params: Final parameters; the last finite ones if the run diverged.
        status: "done", "diverged" or "interrupted".
        seconds: Time spent training, over all sittings.
        notes: What a reader should know: a fallback, a damaged checkpoint, a hint on divergence.
        diverged_at: The epoch in which the loss stopped being finite, or None.
        path: The run directory, or None for a run kept in memory.
        data: The data set, when it was given in memory; otherwise made again when needed.
        ends: Parameters at the end of each phase that is over but the last, in order.
    """

    config: RunConfig
    columns: Columns
    params: Params
    status: str
    seconds: float
    notes: tuple[str, ...] = ()
    diverged_at: int | None = None
    path: Path | None = None
    data: Dataset | None = None
    ends: tuple[Params, ...] = ()

    @property
    def history(self) -> pd.DataFrame:
        """The history as a pandas table."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    @property
    def final(self) -> dict[str, float]:
        """The last row of the history."""
        return {name: column[-1].item() for name, column in self.columns.items()}

    def dataset(self) -> Dataset:
        """Return the data set the run was trained on."""
        return self.data if self.data is not None else make(self.config.data)

    def module(self) -> nn.Module:
        """Return the torch network with the final parameters."""
        return build(self.config.arch, self.params, self.dataset().x_train)

    def result(self) -> dict[str, Any]:
        """Return the summary that is stored as result.json."""
        return {
            "status": self.status,
            "seconds": self.seconds,
            "seed": self.config.seed,
            "epochs": int(self.columns["epoch"][-1]),
            "diverged_at": self.diverged_at,
            "notes": list(self.notes),
            "final": self.final,
            "versions": versions(),
        }


def load_run(path: str | Path) -> Run:
    """Read a run directory, finished or not."""
    store = RunStore.read(path)
    try:
        config = RunConfig.from_dict(store.config)
    except UserError as error:
        raise UserError(f"{store.path / CONFIG}: {error}") from None
    checkpoint, result = store.load_checkpoint(), read_result(store)
    if checkpoint is None and result is not None:
        raise StoreError(f"{path} has a result but no checkpoint: run the same command again")
    if checkpoint is None:
        raise UserError(f"{path} has no checkpoint yet: the run has not got far enough to show")
    notes = checkpoint.warnings + tuple(result["notes"] if result else ())
    columns, params, _ = split(checkpoint)
    if result and result["status"] == "done" and int(columns["epoch"][-1]) != config.epochs:
        raise StoreError(
            f"{path}: the result says done but the newest readable checkpoint stops at epoch "
            f"{int(columns['epoch'][-1])}: run the same command again to finish it"
        )
    return Run(
        config=config,
        columns=columns,
        params=params,
        status=result["status"] if result else "interrupted",
        seconds=float(result["seconds"] if result else checkpoint.meta["seconds"]),
        notes=notes,
        diverged_at=result["diverged_at"] if result else None,
        path=Path(path),
        ends=phase_ends(checkpoint),
    )


def examine(path: str | Path) -> Run:
    """Read a run directory to look into it: what it lacks comes first among the notes.

    Raises:
        StoreError: A file is damaged, the table of the history among them.
    """
    run, store = load_run(path), RunStore.read(path)
    lacks, table = [], store.load_history()
    if run.status == "interrupted":
        missing = "" if store.load_result() else "it has no result.json; "
        lacks.append(
            f"unfinished: epoch {int(run.columns['epoch'][-1])} of {run.config.epochs} is the last "
            f"one logged; {missing}run the command that trained it again to finish it"
        )
    elif table is None:
        lacks.append(
            "it has no history.parquet: run the command that trained it again, which writes it anew"
        )
    return dataclasses.replace(run, notes=(*lacks, *run.notes))


def start_table(path: str | Path) -> dict[str, str]:
    """Return the `start` of a configuration that begins with the parameters of a stored run."""
    return {"run": str(Path(path).absolute()), "sha256": params_digest(load_run(path).params)}


def start_of(start: Mapping[str, Any]) -> Params:
    """Return the parameters that `start_table` named; other ones in that place are an error."""
    params = load_run(start["run"]).params
    if start.get("sha256", "") != params_digest(params):
        raise UserError(
            f"{start['run']} holds other parameters than when this run was planned: "
            "start again from it in another directory"
        )
    return params


def params_digest(params: Params) -> str:
    """Return the SHA-256 of parameters: names, shapes and values."""
    digest = hashlib.sha256()
    for name, value in params.items():
        digest.update(f"{name}{value.shape}{value.dtype}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


def read_result(store: RunStore) -> dict[str, Any] | None:
    """Return a run's result.json, or None; `StoreError` if it is not one that `Run.result` made."""
    result = store.load_result()
    needed = ("status", "seconds", "notes", "diverged_at")
    if result is not None and any(name not in result for name in needed):
        raise StoreError(f"{store.path}: result.json is damaged: {AGAIN}")
    return result


def split(checkpoint: Checkpoint) -> tuple[Columns, Params, Params]:
    """Split a checkpoint's tensors into history, parameters and velocity, each in its order."""
    parts: dict[str, Columns] = {"history": {}, "params": {}, "velocity": {}}
    for name in checkpoint.meta.get("order", checkpoint.tensors):  # the file has its own order
        part, _, rest = name.partition("/")
        if part in parts:
            parts[part][rest] = checkpoint.tensors[name]
    return parts["history"], parts["params"], parts["velocity"]


def phase_ends(checkpoint: Checkpoint) -> tuple[Params, ...]:
    """Return a checkpoint's parameters at the ends of phases, in their order."""
    ends: list[Params] = []
    for name in checkpoint.meta.get("order", ()):
        part, _, rest = name.partition("/")
        if part == "ends":
            phase, _, parameter = rest.partition("/")
            if int(phase) == len(ends):
                ends.append({})
            ends[-1][parameter] = checkpoint.tensors[name]
    return tuple(ends)


def versions() -> dict[str, str]:
    """Return the versions that may matter for the bits of a result."""
    names = ("flatlab", "numpy", "numba", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
