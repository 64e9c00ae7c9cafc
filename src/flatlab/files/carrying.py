"""A run directory as bytes, to carry it between machines that share no folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import StoreError
from .durable import ensure_directory, locked, read, remove, write_atomically
from .store import CHECKPOINT, CONFIG, HISTORY, PREVIOUS, RESULT

# In the order in which they are written: the result last, after the files that it describes.
FILES = (CONFIG, PREVIOUS, CHECKPOINT, HISTORY, RESULT)
TO_CONTINUE = (CONFIG, CHECKPOINT)


def packed(path: Path, names: Iterable[str] = FILES) -> dict[str, bytes]:
    """Return the files of a run or a computation that are there, by name."""
    found = ((name, read(path / name)) for name in names)
    return {name: data for name, data in found if data is not None}


def unpack(path: Path, files: Mapping[str, bytes]) -> None:
    """Make these the files of a directory; others that flatlab writes are removed, result first.

    Raises:
        BusyError: A process works in this directory.
        StoreError: A file is none that flatlab writes.
    """
    if unknown := files.keys() - set(FILES):
        raise StoreError(f"{sorted(unknown)} are not files of a run: nothing was written to {path}")
    ensure_directory(path)
    with locked(path):
        for name in reversed(FILES):
            if name not in files:
                remove(path / name)
        for name in FILES:
            if name in files:
                write_atomically(path / name, files[name])
