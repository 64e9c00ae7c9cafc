"""Files that last: atomic writes, readable errors, a lock that dies with its process.

Every file is written under a temporary name, synced and renamed. So a reader sees the old file or
the new one, never half a file, even if the process is killed or the power fails. Durability has a
price: each write waits twice for the disk (an fsync of the file, one of the directory), so save
every few seconds of work, not every step.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from ..errors import BusyError, FlatlabError, StoreError, UserError, require_file

LOCK = "lock"
# Only names that this package gives, so that a user's own hidden file is never removed.
_TEMPORARY = re.compile(r"\.(?:config|history|checkpoint|result)\.[\w.]+\.[0-9a-f]{12}\.tmp")


def ensure_directory(path: str | os.PathLike[str]) -> None:
    """Create a directory for output, with parents; raise `UserError` if that is impossible."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        require_whole_links(path)
        wrong = next((part for part in (path, *path.parents) if part.is_file()), path)
        raise UserError(f"{wrong} is not a directory: choose another place for {path}") from None
    except OSError as error:
        raise write_error(path, error) from error
    # access(2) also detects read-only file systems, where even root cannot write.
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(f"{path} is not writable: choose another directory")


def require_whole_links(path: Path) -> None:
    """Refuse a path that leads through a link to nowhere."""
    for link in (path, *path.parents):
        if link.is_symlink() and not link.exists():
            raise UserError(
                f"{link} is a link to {os.readlink(link)}, which does not exist: make that "
                f"directory, or choose another place for {path}"
            ) from None


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file atomically: it is always the old one or the new one, and the new one lasts.

    Costs two fsyncs: one of the file, before the rename, and one of the directory, after it.

    Raises:
        StoreError: The disk is full or failed; the old file is intact.
        UserError: The place is not writable.
    """
    with temporary(path, data) as made:
        os.replace(made, path)
        sync_directory(path.parent)


@contextlib.contextmanager
def temporary(path: Path, data: bytes) -> Iterator[Path]:
    """Write and sync a temporary file next to `path`; it is removed unless it was renamed."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(made, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield made
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            made.unlink()


def sync_directory(path: Path) -> None:
    """Sync a directory, so that renames in it last."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a directory
            raise
    finally:
        os.close(descriptor)


def write_error(path: Path, error: OSError) -> FlatlabError:
    """Return the error to raise for a failed write: what happened and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(
            f"no space left to write {path}: free some space and run the same command again; "
            f"what was saved before is intact"
        )
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return UserError(f"{path} is not writable ({error.strerror}): choose another directory")
    return StoreError(f"cannot write {path}: {error.strerror or error}")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a directory's lock and remove the leftovers of killed processes; `BusyError` if held."""
    import fcntl  # here, so that results can be read on systems without fcntl

    try:
        # Never deleted; otherwise a process could hold the lock of a file that no other can find.
        file = open(path / LOCK, "a+b", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise write_error(path / LOCK, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(file.fileno(), 20, 0).decode(errors="replace").strip()
            holder = f"another process (pid {pid})" if pid else "another process"
            raise BusyError(
                f"{holder} is working on {path}: wait for it or choose another directory"
            ) from None
        except OSError as error:
            raise StoreError(f"cannot lock {path}: {error.strerror}") from error
        try:
            _write_pid(file.fileno(), str(os.getpid()))
            for entry in path.iterdir():
                if _TEMPORARY.fullmatch(entry.name):
                    remove(entry)
            yield
        finally:
            _write_pid(file.fileno(), "")
            # Unlock explicitly, because a forked child may still have the file open. If that fails,
            # as on a network file system that is gone, closing the file is all that is left.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Wait for the lock of a file and hold it; the file stays.

    If the file cannot be created, nothing is locked: the caller cannot write its own files there
    either.
    """
    import fcntl  # as above

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open(path, "ab"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write_pid(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):  # only for the message, so a full disk must not matter
        os.ftruncate(descriptor, 0)
        os.write(descriptor, text.encode())


def remove(path: Path) -> None:
    """Remove a file if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise write_error(path, error) from error


def read(path: Path) -> bytes | None:
    """Return a file's content, or None if there is no such file."""
    require_file(path)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        kind = UserError if isinstance(error, PermissionError) else StoreError
        raise kind(f"cannot read {path}: {error.strerror}") from error


def is_leftover(name: str) -> bool:
    """Return whether a file is the lock or a temporary file of a killed process."""
    return name == LOCK or _TEMPORARY.fullmatch(name) is not None


def writable(text: str) -> str:
    """Return a text that UTF-8 can write; refuse another one, as a name with a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.split("\n")[text.count("\n", 0, error.start)]
        raise UserError(
            f"a run is stored as UTF-8 text, which cannot hold {line!r}: write it with other "
            "characters"
        ) from None
    return text
