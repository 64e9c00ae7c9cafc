"""What training returns: a `Run`, in memory or read back from its directory."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import platform
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import Dataset
from ..data.catalogue import make
from ..errors import StoreError, UserError, require_path, whole_number
from ..files.store import (
    AGAIN,
    CONFIG,
    FORMAT,
    HISTORY,
    RESULT,
    REWRITE,
    Checkpoint,
    RunStore,
    damaged,
)
from ..models import Params, network
from ..outside.tables import html_table
from .config import RunConfig, config_digest, stored, upgraded

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
        code: SHA-256 of the file of the user's own network when a stored run was begun, or None.
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
    code: str | None = None

    @property
    def history(self) -> pd.DataFrame:
        """The history as a pandas table."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    @property
    def final(self) -> dict[str, float]:
        """The last row of the history."""
        return {name: column[-1].item() for name, column in self.columns.items()}

    def rows(self, most: int) -> list[dict[str, Any]]:
        """Return at most `most` rows of the history, including the first and the last."""
        total, most = len(self.columns["epoch"]), whole_number("most", most, least=1)
        chosen = np.unique(np.linspace(0, total - 1, min(most, total)).round().astype(int))
        return [{name: column[k].item() for name, column in self.columns.items()} for k in chosen]

    def __repr__(self) -> str:
        config, final = self.config, self.final
        shown = [name for name in ("train_loss", "test_error", "trace") if name in final]
        numbers = "".join(f", {name} {final[name]:.4g}" for name in shown)
        where = f", in {self.path}" if self.path else ""
        return (
            f"Run({self.status} at epoch {int(final['epoch'])} of {config.epochs}: "
            f"{config.arch.describe()} on {config.data.get('name', 'data')}, seed {config.seed}"
            f"{numbers}{where})"
        )

    def _repr_html_(self) -> str:
        """Return the history for a notebook; errors and arrays are left out."""
        names = [name for name in self.columns if "." not in name and not name.endswith("_stderr")]
        rows = [{name: row[name] for name in names} for row in self.rows(12)]
        return html_table(rows, repr(self), self.notes)

    def plot(self) -> Any:
        """Return a matplotlib figure of the history: losses, errors, the trace and the measures."""
        from .pictures import picture

        return picture(self).figure()

    def dataset(self) -> Dataset:
        """Return the data set the run was trained on."""
        return self.data if self.data is not None else make(self.config.data)

    def module(self) -> nn.Module:
        """Return the torch network with the final parameters; warn if its code has changed."""
        for note in changed_code(self.config, self.code):
            warnings.warn(note, stacklevel=2)
        arch, seed, data = self.config.arch, self.config.seed, self.dataset()
        return network(arch, data, seed, dict(self.params), dict(self.buffers))

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
    path = require_path("a run", path, "its directory")
    store = RunStore.read(path, config_digest, upgraded)
    store.config = stored(store.config)
    return store


def load_run(path: str | Path) -> Run:
    """Read a run directory, finished or not."""
    store = read_store(path)
    path = store.path
    try:
        config = RunConfig.from_dict(store.config)
    except UserError as error:
        raise UserError(f"{store.path / CONFIG}: {error}") from None
    checkpoint = store.load_checkpoint()
    if checkpoint is None:
        if store.load_result() is not None:
            raise StoreError(f"{path} has a result but no checkpoint: run the same command again")
        raise UserError(f"{path} has no checkpoint yet: the run has not got far enough to show")
    result, damage = ending(store, config, checkpoint)
    notes = checkpoint.warnings + damage + tuple(result["notes"] if result else ())
    if store.format < FORMAT:
        notes += (f"written by an older flatlab, in format {store.format}",)
    columns, place = arrays_of(checkpoint, "history/"), path
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
        code=checkpoint.meta.get("code"),
    )


def ending(
    store: RunStore, config: RunConfig, checkpoint: Checkpoint
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Return how a run ended, None if it goes on, and a note if result.json is damaged.

    The checkpoint says how the run ended, so result.json may be missing or damaged. A checkpoint of
    an older version says it only if the run came to its last epoch.

    Raises:
        StoreError: The checkpoint is of another configuration, or of an earlier moment than the
            end that result.json tells of.
    """
    damage: tuple[str, ...] = ()
    try:
        written = read_result(store)
    except StoreError as error:
        written, damage = None, (str(error),)
    meta, last = checkpoint.meta, int(checkpoint.tensors["history/epoch"][-1])
    require_own(store, config, checkpoint)
    result: dict[str, Any] | None = meta.get("result")
    if "config" not in meta:  # of an older version
        result = written
        if written is None and meta["phase"] == len(config.schedule):
            until = config.schedule[-1].until if config.schedule else None
            result = {"status": "reached" if until else "done", "seconds": meta["seconds"]}
            result |= {"epochs": last, "diverged_at": None, "notes": []}
    earlier = last != written["epochs"] or result is None if written else False
    if written and written["status"] in OVER and earlier:
        raise StoreError(
            f"{'; '.join(checkpoint.warnings) or store.path}: the result says {written['status']} "
            f"at epoch {written['epochs']} but the newest readable checkpoint stops at epoch "
            f"{last}: run the same command again to finish it"
        )
    return result, damage


def require_own(store: RunStore, config: RunConfig, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that was written for another configuration."""
    if checkpoint.meta.get("config", config.digest()) != config.digest():
        raise StoreError(
            f"{store.path}: the checkpoint is of another configuration than {CONFIG}: {AGAIN}"
        )


def is_whole(store: RunStore) -> bool:
    """Return whether a finished run has the table of its history and result.json, undamaged."""
    with contextlib.suppress(StoreError):
        return store.load_history() is not None and read_result(store) is not None
    return False


def mend(store: RunStore, checkpoint: Checkpoint) -> None:
    """Write the table of the history and result.json of a finished run if they are not whole."""
    if is_whole(store):
        return
    run = load_run(store.path)
    result, _ = ending(store, run.config, checkpoint)
    store.save_history(run.columns)
    store.save_result({**run.result(), **(result or {})})


def examine(path: str | Path) -> Run:
    """Read a run directory to look into it: what it lacks comes first among the notes.

    Raises:
        StoreError: A file is damaged, the table of the history among them.
    """
    run, store = load_run(path), read_store(path)
    lacks, table = [], store.load_history()
    if run.status == "interrupted":
        lacks.append(unfinished(run))
    for name, there in ((HISTORY, table is not None), (RESULT, (store.path / RESULT).exists())):
        if run.status in OVER and not there:
            lacks.append(
                f"it has no {name}: run the command that trained it again, which writes it anew"
            )
    return dataclasses.replace(run, notes=(*lacks, *run.notes))


def unfinished(run: Run) -> str:
    """Say how far an interrupted run has come and what to do."""
    return (
        f"unfinished: epoch {int(run.columns['epoch'][-1])} of {run.config.epochs} is the last one "
        "logged; run the command that trained it again to finish it"
    )


def start_table(path: str | Path) -> dict[str, str]:
    """Return the `start` of a configuration that begins with the parameters of a stored run."""
    run = load_run(path)
    return {"run": str(run.path and run.path.absolute()), "sha256": params_digest(run.params)}


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
        raise damaged(store.path / RESULT, "a field is missing or of another type", REWRITE)
    return result


def arrays_of(checkpoint: Checkpoint, prefix: str) -> Params:
    """Return the arrays whose names begin with the prefix, without it, in the stored order."""
    order = checkpoint.meta.get("order", checkpoint.tensors)  # the file has its own order
    return {
        name.removeprefix(prefix): checkpoint.tensors[name]
        for name in order
        if name.startswith(prefix)
    }


def changed_code(config: RunConfig, begun: str | None) -> tuple[str, ...]:
    """Return a note if the code of the user's own network is not what the run was begun with."""
    if begun is None or begun == config.arch.code():
        return ()
    return (
        f"the code of {config.arch.describe()} has changed since this run was begun, and code is "
        "no part of a run's name: train again with --fresh or in another directory",
    )


def phases_over(checkpoint: Checkpoint) -> int:
    """Return for how many phases a checkpoint holds the parameters at their end."""
    names = checkpoint.meta.get("order", ())
    return len({name.split("/")[1] for name in names if name.startswith("ends/")})


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions that may matter for the bits of a result, as at the first call."""
    names = ("flatlab", "numpy", "numba", "scipy", "torch")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
