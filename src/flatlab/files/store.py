"""A run directory and its files: the only code that writes results to disk.

A run is a directory:

    config.toml                       the configuration and the format number
    history.parquet                   one row per logged epoch
    checkpoint.safetensors            where to continue
    checkpoint.previous.safetensors   the checkpoint before, in case the current one is damaged
    result.json                       the result
    lock                              held by the process that works here

Writes are atomic and durable (`durable`), and every file has a checksum: config.toml in its first
line, history.parquet in its metadata, result.json as a field, checkpoints in their header
(`checkpoints`). A file without one, from an older version or written by hand, is read all the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BusyError, FlatlabError, StoreError, UserError, require_file
from ..specs import digest
from . import durable
from .checkpoints import CHECKSUM, MISMATCH, read_checkpoint, serialise
from .checkpoints import Checkpoint as Checkpoint
from .durable import ensure_directory as ensure_directory
from .durable import is_leftover, read, remove, require_whole_links, sync_directory, temporary
from .durable import locked as locked
from .durable import write_atomically as write_atomically
from .history import from_parquet, to_parquet

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

FORMAT = 2
PathLike = str | os.PathLike[str]
Digest = Callable[[Mapping[str, Any]], str]
Upgrade = Callable[[Mapping[str, Any], int], dict[str, Any]]
AGAIN = "start again with --fresh, or without this run's folder"

CONFIG = "config.toml"
HISTORY, RESULT = "history.parquet", "result.json"
CHECKPOINT, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"
REWRITE = "run the command that trained it again to rewrite it"
_FIRST_LINE = b"# sha256 of the lines below: "


class DamagedConfig(StoreError):
    """A config.toml that cannot be what flatlab wrote."""


class RunStore:
    """One run directory. Reading is free; write only inside `lock()`."""

    def __init__(
        self, path: Path, config: dict[str, Any], digest_of: Digest = digest, number: int = FORMAT
    ) -> None:
        self.path, self.format = path, number
        self.config, self._digest = config, digest_of
        self._current_is_valid: bool | None = None  # None: not checked yet

    @classmethod
    def open(
        cls,
        path: PathLike,
        config: Mapping[str, Any],
        *,
        fresh: bool = False,
        digest_of: Digest = digest,
        upgrade: Upgrade | None = None,
    ) -> RunStore:
        """Create the run directory, or open it if it holds a run of the same config.

        Args:
            path: The directory; parents are created.
            config: Plain values without None, as from `specs.to_dict`.
            fresh: Remove the files of the existing run (only those that flatlab writes).
            digest_of: Configuration → digest that tells runs apart.
            upgrade: (configuration, format) → the configuration in the current format.

        Raises:
            UserError: The path is not a run, or a run of another config or of a newer format.
            BusyError: A new or fresh run is wanted and another process holds the lock.
        """
        path, text = Path(path), _to_toml(config)
        store = cls(path, tomllib.loads(text), digest_of)
        del store.config["format"]
        found = store._find(fresh, upgrade)
        if found is None or fresh:
            ensure_directory(path)
            with locked(path):
                found = store._find(fresh, upgrade)
                if found is None or fresh:
                    # The config goes last: a kill in between leaves a run, not a riddle.
                    for name in (RESULT, CHECKPOINT, PREVIOUS, HISTORY):
                        if fresh or not store._began():
                            remove(path / name)
                    write_atomically(path / CONFIG, _with_checksum(text))
                    return store
        there, store.format = found
        if digest_of(there) != digest_of(store.config):
            raise UserError(_conflict(path, there, config))
        return store

    @classmethod
    def read(
        cls, path: PathLike, digest_of: Digest = digest, upgrade: Upgrade | None = None
    ) -> RunStore:
        """Open an existing run for reading; see `open`."""
        path = Path(path)
        found = _find_config(path, upgrade)
        if found is None:
            raise UserError(f"{path} is not a run directory: it has no {CONFIG}")
        return cls(path, found[0], digest_of, found[1])

    def _find(self, fresh: bool, upgrade: Upgrade | None) -> tuple[dict[str, Any], int] | None:
        """Read the config and its format; None if it has to be written.

        A damaged one is written anew if a checkpoint tells that this run was begun here.
        """
        try:
            return _find_config(self.path, None if fresh else upgrade)
        except DamagedConfig:
            names = {name for name in os.listdir(self.path) if not is_leftover(name)}
            ours = {CONFIG} < names <= {CONFIG, HISTORY, RESULT, CHECKPOINT, PREVIOUS}
            if ours and (fresh or self._began()):
                return None
            raise

    def _began(self) -> bool:
        """Return whether a checkpoint here names the digest of this configuration."""
        found = (read_checkpoint(self.path / name) for name in (CHECKPOINT, PREVIOUS))
        wanted = self._digest(self.config)
        return any(isinstance(c, Checkpoint) and c.meta.get("config") == wanted for c in found)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for this process; the system releases the lock even after `kill -9`.

        Temporary files that a killed process left behind are removed.

        Raises:
            BusyError: Another process holds the lock, or has replaced the run since.
        """
        with locked(self.path):
            found = _find_config(self.path)
            same = found is not None and (
                found[1] != FORMAT or self._digest(found[0]) == self._digest(self.config)
            )
            if not same:
                raise BusyError(
                    f"another process has replaced the run in {self.path}: "
                    f"run the same command again or choose another directory"
                )
            yield

    def rehearse(self) -> None:
        """Do in memory what saving does, so that all it imports is loaded.

        Otherwise a package that is upgraded or removed during a run would lose its end.
        """
        import numpy as np

        columns = {"epoch": np.arange(2), "loss": np.ones(2)}
        serialise(columns, {})
        from_parquet(to_parquet(columns))

    def save_checkpoint(self, tensors: Mapping[str, Array], meta: Mapping[str, Any]) -> None:
        """Save a new checkpoint and keep the one before.

        The new file is complete and synced before the current one is renamed to previous, so a
        valid checkpoint exists at every moment. A damaged current file is never renamed to
        previous, because it would replace the last valid one.
        """
        current = self.path / CHECKPOINT
        if self._current_is_valid is None:
            self._current_is_valid = isinstance(read_checkpoint(current), Checkpoint)
        with temporary(current, serialise(tensors, meta)) as made:
            if self._current_is_valid:
                with contextlib.suppress(FileNotFoundError):
                    os.replace(current, self.path / PREVIOUS)
            os.replace(made, current)
            self._current_is_valid = True
            sync_directory(self.path)

    def load_checkpoint(self) -> Checkpoint | None:
        """Return the newest valid checkpoint, or None if none was ever saved.

        Raises:
            StoreError: There are checkpoint files and none of them is valid.
        """
        bad_files: list[str] = []
        for name in (CHECKPOINT, PREVIOUS):
            found = read_checkpoint(self.path / name)
            if name == CHECKPOINT:
                self._current_is_valid = isinstance(found, Checkpoint)
            if isinstance(found, Checkpoint):
                warnings = tuple(f"{bad}: continuing from {name}" for bad in bad_files)
                return Checkpoint(found.tensors, found.meta, warnings)
            if found is not None:
                bad_files.append(f"{self.path / name} is damaged ({found})")
        if bad_files:
            raise StoreError(f"{' and '.join(bad_files)}: {AGAIN}")
        return None

    def save_history(self, columns: Mapping[str, Array]) -> None:
        """Write the table of logged epochs: one-dimensional columns of equal length."""
        write_atomically(self.path / HISTORY, to_parquet(columns))

    def load_history(self) -> dict[str, Array] | None:
        """Return the columns of the history as writable arrays, or None if there is none."""
        data = read(self.path / HISTORY)
        if data is None:
            return None
        try:
            return from_parquet(data)
        except ValueError as error:
            raise damaged(self.path / HISTORY, error, REWRITE) from None

    def save_result(self, result: Mapping[str, Any]) -> None:
        """Write the result as JSON; a float that is not finite becomes null."""
        readable = plain(result)
        write_json(self.path / RESULT, {**readable, CHECKSUM: checksum_of(readable)})

    def result_checksum(self) -> str | None:
        """Return the SHA-256 of result.json, as sha256sum gives it; None if there is none."""
        data = read(self.path / RESULT)
        return None if data is None else hashlib.sha256(data).hexdigest()

    def load_result(self) -> dict[str, Any] | None:
        """Return the result, or None if the run has none yet."""
        try:
            require_file(self.path / RESULT)
        except UserError:  # the checkpoint has the same, so this is as good as a damaged file
            raise damaged(self.path / RESULT, "a pipe or a device", REWRITE) from None
        data = read(self.path / RESULT)
        if data is None:
            return None
        try:
            result = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise damaged(self.path / RESULT, error, REWRITE) from None
        if not isinstance(result, dict):
            raise damaged(self.path / RESULT, "not a JSON object", REWRITE)
        expected = result.pop(CHECKSUM, None)
        if expected is not None and expected != checksum_of(result):
            raise damaged(self.path / RESULT, MISMATCH, REWRITE)
        return result


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document as JSON; a float that is not finite becomes null."""
    text = json.dumps(plain(document), indent=2, allow_nan=False)
    write_atomically(path, text.encode() + b"\n")


def checksum_of(document: Any) -> str:
    """Return the SHA-256 of plain values; the order of keys does not matter."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def run_directories(root: PathLike) -> list[Path]:
    """Return the run directories at and below `root`, sorted; symbolic links are not followed."""
    walked = (Path(directory) for directory, _, files in os.walk(root) if CONFIG in files)
    return sorted(path for path in walked if _looks_like_run(path / CONFIG))


def damaged(path: Path, reason: object, remedy: str = AGAIN) -> StoreError:
    """Return the error to raise for a damaged file."""
    return StoreError(f"{path} is damaged ({reason}): {remedy}")


def _to_toml(config: Mapping[str, Any]) -> str:
    import tomli_w

    if "format" in config:
        raise ValueError("the key 'format' of a config is the store's own")
    digest(config)  # raises if a value is not plain or not finite
    return durable.writable(tomli_w.dumps({"format": FORMAT, **config}))


def _with_checksum(text: str) -> bytes:
    data = text.encode()
    return _FIRST_LINE + hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def _check_config(data: bytes) -> None:
    """Raise ValueError if the first line holds the checksum of other lines than these."""
    first, _, rest = data.partition(b"\n")
    expected = first.removeprefix(_FIRST_LINE)
    if expected != first and expected != hashlib.sha256(rest).hexdigest().encode():
        raise ValueError(MISMATCH)


def _find_config(path: Path, upgrade: Upgrade | None = None) -> tuple[dict[str, Any], int] | None:
    """Read the config of a run and its format; None if the directory is missing or empty.

    Raises:
        UserError: There are files, but not of a run.
        DamagedConfig: The config is damaged.
    """
    if not os.path.isdir(path):
        if os.path.lexists(path):
            require_whole_links(path)
            raise UserError(f"{path} is a file, not a run directory: choose another directory")
        return None
    data = read(path / CONFIG)
    if data is None:
        try:
            names = os.listdir(path)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        # A kill during creation leaves a lock and perhaps a temporary file; that counts as empty.
        if all(is_leftover(name) for name in names):
            return None
        raise UserError(
            f"{path} is not a run directory: it has files but no {CONFIG}; choose another directory"
        )
    try:
        _check_config(data)
        config = tomllib.loads(data.decode())
        number = config.pop("format", None)
        others = any((path / name).exists() for name in (CHECKPOINT, PREVIOUS, HISTORY))
        if type(number) is not int and others:
            raise ValueError("it names no format")
    except (ValueError, RecursionError) as error:
        raise DamagedConfig(
            f"{path / CONFIG} is damaged ({error}): run the command that trained it again, with "
            "--fresh or in another directory if that fails too; if you changed the file yourself, "
            "remove its first line"
        ) from None
    if type(number) is not int:
        raise UserError(f"{path / CONFIG} was not written by flatlab: choose another directory")
    if number > FORMAT:
        raise UserError(
            f"{path} was made by a newer flatlab (format {number}, this one reads {FORMAT}): "
            f"upgrade flatlab or choose another directory"
        )
    if upgrade is not None and number < FORMAT:
        try:
            config = upgrade(config, number)
        except UserError as error:
            raise UserError(
                f"{path} was written by an older flatlab (format {number}, this one writes "
                f"{FORMAT}) and cannot be read ({error}): train it again with --fresh"
            ) from None
    return config, number


def _looks_like_run(config: Path) -> bool:
    with contextlib.suppress(FlatlabError, ValueError, RecursionError):
        data = read(config) if config.is_file() else None
        return data is not None and type(tomllib.loads(data.decode()).get("format")) is int
    return False


def _conflict(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    there, here = _leaves(found), _leaves(wanted)
    keys = [key for key in here | there if there.get(key) != here.get(key)]
    values = [(key, there.get(key, "unset"), here.get(key, "unset")) for key in keys[:3]]
    parts = [f"{key} is {old} there, {new} here" for key, old, new in values]
    more = f"; and {len(keys) - 3} more" if len(keys) > 3 else ""
    return (
        f"{path} holds another run ({'; '.join(parts)}{more}): "
        f"choose another directory, or replace that run with --fresh"
    )


def _leaves(value: Any, key: str = "") -> dict[str, str]:
    """Flatten to dotted keys and JSON text; as in `digest`, 1, 1.0 and true differ."""
    if isinstance(value, Mapping | list | tuple) and value:
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        dotted = ((f"{key}.{name}" if key else str(name), part) for name, part in items)
        return {leaf: text for name, part in dotted for leaf, text in _leaves(part, name).items()}
    return {key: json.dumps(value)}


def plain(value: Any) -> Any:
    """Convert a value for JSON; numbers that are not finite become None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else value  # numpy values
