"""What training returns: a `Run`, in memory or read back from its directory."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import Dataset
from ..data.catalogue import make
from ..errors import StoreError, UserError
from ..files.store import AGAIN, CONFIG, FORMAT, Checkpoint, RunStore
from ..models import Params, build, is_chain, network
from .config import RunConfig, config_digest, upgraded

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

OVER = ("done", "reached", "missed", "diverged")
"""Statuses of a run that training it further would not change."""
Columns = dict[str, np.ndarray]


class StoredArrays(Mapping[str, np.ndarray]):
    """Arrays of a checkpoint that are read when they are first asked for."""

    def __init__(self, path: Path, prefix: str) -> None:
        self.path, self.prefix = path, prefix

    @functools.cached_property
    def arrays(self) -> Params:
        """The arrays by name."""
        checkpoint = read_store(self.path).load_checkpoint()
        return {} if checkpoint is None else arrays_of(checkpoint, self.prefix)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def __repr__(self) -> str:
        return f"StoredArrays({str(self.path)!r}, {self.prefix!r})"


Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A training run.

    Attributes:
        config: What was run.
        columns: The history, one array a column: epoch, step, train_loss; train_error for labels ±1
            and classes; with a test set test_loss and test_error; each tracked measure with its
            standard error as name_stderr. The networks of the engine add trace, trace_ggn,
            memorisation, and features where the data set knows its relevant coordinates.
        params: Final parameters; the last finite ones if the run diverged. A stored run reads them
            when they are first asked for.
        status: "done"; "reached" or "missed" for a run with a target (`Until`); "diverged" or
            "interrupted".
        seconds: Time spent training, over all sittings.
        notes: What a reader should know: a fallback, a damaged checkpoint, a hint on divergence.
        diverged_at: The epoch in which the loss stopped being finite, or None.
        path: The run directory, or None for a run kept in memory.
        data: The data set, when it was given in memory; otherwise made again when needed.
        ends: Parameters at the end of each phase that is over but the last, in order.
        buffers: What the network keeps beside parameters, as BatchNorm's running statistics.
    """

    config: RunConfig
    columns: Columns
    params: Arrays
    status: str
    seconds: float
    notes: tuple[str, ...] = ()
    diverged_at: int | None = None
    path: Path | None = None
    data: Dataset | None = None
    ends: tuple[Arrays, ...] = ()
    buffers: Arrays = dataclasses.field(default_factory=dict)

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
        arch, params = self.config.arch, dict(self.params)
        if is_chain(arch):
            return build(arch, params, self.dataset().x_train)
        return network(arch, self.dataset(), self.config.seed, params, dict(self.buffers))

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


def read_store(path: str | Path) -> RunStore:
    """Open a run directory for reading, of this or an older format."""
    return RunStore.read(path, config_digest, upgraded)


def load_run(path: str | Path) -> Run:
    """Read a run directory, finished or not."""
    store = read_store(path)
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
    if store.format < FORMAT:
        notes += (f"written by an older flatlab, in format {store.format}",)
    columns, place = arrays_of(checkpoint, "history/"), Path(path)
    if result and result["status"] in OVER and int(columns["epoch"][-1]) != result["epochs"]:
        raise StoreError(
            f"{path}: the result says {result['status']} at epoch {result['epochs']} but the "
            f"newest readable checkpoint stops at epoch {int(columns['epoch'][-1])}: run the same "
            "command again to finish it"
        )
    return Run(
        config=config,
        columns=columns,
        params=StoredArrays(place, "params/"),
        status=result["status"] if result else "interrupted",
        seconds=float(result["seconds"] if result else checkpoint.meta["seconds"]),
        notes=notes,
        diverged_at=result["diverged_at"] if result else None,
        path=place,
        ends=tuple(StoredArrays(place, f"ends/{k}/") for k in range(phases_over(checkpoint))),
        buffers=StoredArrays(place, "buffers/"),
    )


def examine(path: str | Path) -> Run:
    """Read a run directory to look into it: what it lacks comes first among the notes.

    Raises:
        StoreError: A file is damaged, the table of the history among them.
    """
    run, store = load_run(path), read_store(path)
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


def start_of(start: Mapping[str, Any]) -> Run:
    """Return the run that `start_table` named; other parameters in that place are an error."""
    run = load_run(start["run"])
    if start.get("sha256", "") != params_digest(run.params):
        raise UserError(
            f"{start['run']} holds other parameters than when this run was planned: "
            "start again from it in another directory"
        )
    return run


def params_digest(params: Arrays) -> str:
    """Return the SHA-256 of parameters: names, shapes and values."""
    digest = hashlib.sha256()
    for name, value in params.items():
        digest.update(f"{name}{value.shape}{value.dtype}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


def read_result(store: RunStore) -> dict[str, Any] | None:
    """Return a run's result.json, or None; `StoreError` if it is not one that `Run.result` made."""
    result = store.load_result()
    if result is None:
        return None
    right = (
        result.get("status") in (*OVER, "interrupted")
        and isinstance(result.get("seconds"), int | float)
        and isinstance(result.get("epochs"), int)
        and isinstance(result.get("notes"), list)
        and isinstance(result.get("diverged_at", ""), int | None)
    )
    if not right:
        raise StoreError(f"{store.path}: result.json is damaged: {AGAIN}")
    return result


def arrays_of(checkpoint: Checkpoint, prefix: str) -> Params:
    """Return the arrays of a checkpoint whose names begin so, without that, in their order."""
    order = checkpoint.meta.get("order", checkpoint.tensors)  # the file has its own order
    return {
        name.removeprefix(prefix): checkpoint.tensors[name]
        for name in order
        if name.startswith(prefix)
    }


def phases_over(checkpoint: Checkpoint) -> int:
    """Return for how many phases a checkpoint holds the parameters at their end."""
    names = checkpoint.meta.get("order", ())
    return len({name.split("/")[1] for name in names if name.startswith("ends/")})


def versions() -> dict[str, str]:
    """Return the versions that may matter for the bits of a result."""
    names = ("flatlab", "numpy", "numba", "scipy", "torch")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
