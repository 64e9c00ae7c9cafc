"""Fetch a published data set: download its archives, unpack its files, put them in place.

Archives wait in a hidden folder until all files are in place, so a kill at any moment costs at most
the bytes that were on their way.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ..errors import StoreError
from .download import TIMEOUT, download, require_address
from .durable import (
    ensure_directory,
    is_leftover,
    locked,
    sync_directory,
    write_atomically,
    write_error,
)

OnFile = Callable[[str, int, int], None]
"""(name of an archive, bytes that are there, bytes of all)."""


class Fetched(Protocol):
    """An archive: its name and size, its checksum, and the files it holds."""

    @property
    def name(self) -> str:
        """The end of its address."""

    @property
    def size(self) -> int:
        """Its number of bytes."""

    @property
    def md5(self) -> str:
        """Its checksum."""

    @property
    def holds(self) -> Sequence[str]:
        """The names of its files."""


def fetch(
    url: str,
    archives: Sequence[Fetched],
    stage: Path,
    target: Path,
    report: OnFile = lambda name, done, size: None,
    *,
    timeout: float = TIMEOUT,
    wait: Callable[[float], None] | None = None,
) -> list[Path]:
    """Download archives, unpack their files into a folder and return the paths.

    Args:
        url: The address of the folder that holds the archives.
        archives: What to download.
        stage: The folder for archives, on the disk of `target`; it is removed at the end.
        target: The folder for the files.
        report: Called with the progress of all archives together.
        timeout: Seconds after which a silent server is given up.
        wait: Sleeps for some seconds between two attempts; by default `time.sleep`.
    """
    require_address(url)
    total, before, made = sum(archive.size for archive in archives), 0, []
    with _staged(stage), locked(stage):
        for archive in archives:

            def say(done: int, _: int, name: str = archive.name, before: int = before) -> None:
                report(name, before + done, total)

            place = stage / archive.name
            address = f"{url.rstrip('/')}/{archive.name}"
            download(address, place, archive.size, archive.md5, say, timeout=timeout, wait=wait)
            before += archive.size
        ensure_directory(target)
        for archive in archives:
            for name, data in _files(stage / archive.name, archive.holds):
                write_atomically(stage / name, data)
                made.append(_moved(stage / name, target / name))
    shutil.rmtree(stage, ignore_errors=True)
    return made


@contextlib.contextmanager
def _staged(stage: Path) -> Iterator[None]:
    """Make the folder of archives; a failure before anything came leaves no folder behind."""
    new = [path for path in stage.parents if not path.exists()]
    ensure_directory(stage)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # a folder that is not empty stays
            if all(is_leftover(path.name) for path in stage.iterdir()):
                shutil.rmtree(stage)
                for path in new:
                    path.rmdir()
        raise


def _moved(path: Path, to: Path) -> Path:
    try:
        os.replace(path, to)
        sync_directory(to.parent)
    except OSError as error:
        raise write_error(to, error) from error
    return to


def _files(archive: Path, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file; of a tar only those that are asked for."""
    try:
        if not archive.name.endswith(".tar.gz"):
            with gzip.open(archive) as stream:
                yield names[0], stream.read()
            return
        left = set(names)
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                if name in left and member.isfile():
                    left.remove(name)
                    yield name, (tar.extractfile(member) or io.BytesIO()).read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise StoreError(f"{archive} cannot be unpacked ({error})") from None
    if left:
        raise StoreError(f"{archive} lacks {', '.join(sorted(left))}")
