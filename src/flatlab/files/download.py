"""Download a file over HTTP: resumed where it stopped, retried, checked, complete or not there.

What arrives is appended to a file whose name ends in `.part`; the next attempt, or the next call,
asks the server for the rest. Nothing that a server says about itself is believed: size and checksum
are known beforehand, and the file gets its own name only if both fit.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FlatlabError, UserError
from .durable import remove, sync_directory, write_error

ATTEMPTS = 5  # in a row without progress
PROGRESS = 0.01  # the share of the file that an attempt must bring to count as progress
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 2**16
LONGEST_WAIT = 60.0
AGAIN = "run the same command again to continue where it stopped"
_RETRIED = {408, 425, 429, 500, 502, 503, 504}  # HTTP statuses that may pass

OnBytes = Callable[[int, int], None]
"""(bytes that are there, bytes of the whole file)."""


class DownloadError(FlatlabError):
    """A file could not be downloaded."""


class _Interrupted(Exception):
    """An attempt ended early; another one may go on. `wait`: seconds that the server asks for."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class _Target:
    """What is to be downloaded, and where to."""

    url: str
    part: Path
    size: int
    md5: str
    report: OnBytes


def download(
    url: str,
    path: Path,
    size: int,
    md5: str,
    report: OnBytes = lambda done, size: None,
    *,
    timeout: float = TIMEOUT,
    wait: Callable[[float], None] | None = None,
) -> None:
    """Download a file of known size and MD5; nothing happens if it is there.

    Args:
        url: Its address, http or https.
        path: Its name; the folder must exist.
        size: Its number of bytes.
        md5: Its checksum.
        report: Called with the bytes that are there and the size.
        timeout: Seconds after which a silent server is given up.
        wait: Sleeps for some seconds between two attempts; by default `time.sleep`.

    Raises:
        DownloadError: The server cannot be reached or refuses, or serves another file.
        UserError: The address is none.
    """
    require_address(url)
    target = _Target(url, path.with_name(f"{path.name}.part"), size, md5, report)
    if path.exists() and _fits(target, path):
        report(size, size)
        return
    _attempts(target, timeout, wait or time.sleep)
    try:
        os.replace(target.part, path)
        sync_directory(path.parent)
    except OSError as error:
        raise write_error(path, error) from error


def require_address(url: str) -> None:
    """Refuse an address that is not of the web."""
    try:
        parts = urllib.parse.urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        valid = False
    if not valid or re.search(r"\s", url):
        raise UserError(f"a download needs an address http://… or https://…, got {url!r}")


def _attempts(target: _Target, timeout: float, wait: Callable[[float], None]) -> None:
    """Ask the server until the file is there and its checksum fits."""
    in_vain = 0
    while True:
        before = _there(target)
        try:
            if before < target.size:
                _attempt(target, before, timeout)
            if _fits(target, target.part):
                return
            remove(target.part)
            if not before:  # else the part was perhaps of another file
                raise _wrong(target, "its checksum is wrong")
            reason, asked = "the part from before was of another file", 0.0
        except _Interrupted as error:
            reason, asked = str(error), error.wait
        gain = _there(target) - before
        in_vain = 0 if gain > PROGRESS * target.size else in_vain + 1
        if in_vain >= ATTEMPTS:
            raise DownloadError(
                f"cannot download {target.url} ({reason}): {_there(target):,} of "
                f"{target.size:,} bytes are there; {AGAIN}, or name a mirror with --from"
            )
        if in_vain:
            wait(min(LONGEST_WAIT, max(asked, 2.0 ** (in_vain - 1))))


def _attempt(target: _Target, there: int, timeout: float) -> None:
    """Ask for the bytes that are missing and append what comes."""
    request = urllib.request.Request(target.url, headers={"User-Agent": "flatlab"})
    if there:
        request.add_header("Range", f"bytes={there}-")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            _append(target, _start(target, response, there), response)
    except urllib.error.HTTPError as error:
        with error:
            _refused(target, error, there)
    except urllib.error.URLError as error:
        raise _Interrupted(str(error.reason)) from None
    except (http.client.HTTPException, OSError) as error:  # the disk's are converted in `_disk`
        raise _Interrupted(str(error) or type(error).__name__) from None
    if (now := _there(target)) < target.size:
        raise _Interrupted(f"the connection ended after {now:,} bytes")


def _start(target: _Target, response: Any, there: int) -> int:
    """Return the place at which the bytes of an answer begin; 0 if the server ignores ranges."""
    if response.headers.get_content_type() == "text/html":
        raise _wrong(target, "it is a web page")
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return 0
    given = str(response.headers.get("Content-Range", ""))
    range_ = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", given.strip())
    if range_ is None or int(range_[1]) != there:
        remove(target.part)
        raise _Interrupted(f"the server sent the range {given!r} instead of bytes {there}-")
    return there


def _append(target: _Target, start: int, response: Any) -> None:
    """Write an answer from `start` on; refuse one that is longer than the expected file."""
    # An OSError of the disk must not pass for one of the network, which is tried again.
    with _disk(target.part):
        stream = open(target.part, "r+b" if start else "wb")  # noqa: SIM115
    with stream:
        with _disk(target.part):
            stream.seek(start)
            stream.truncate()
        while data := response.read1(CHUNK):
            start += len(data)
            if start > target.size:
                stream.close()
                remove(target.part)
                raise _wrong(target, f"it has more than {target.size:,} bytes")
            with _disk(target.part):
                stream.write(data)
            target.report(start, target.size)
        with _disk(target.part):
            stream.flush()
            os.fsync(stream.fileno())


@contextlib.contextmanager
def _disk(path: Path) -> Any:
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def _refused(target: _Target, error: urllib.error.HTTPError, there: int) -> None:
    """Say what an HTTP status means: ask again, from the start or later, or give up."""
    said = f"HTTP {error.code} {error.reason}".strip()
    if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and there:
        remove(target.part)
        raise _Interrupted(said)
    if error.code in _RETRIED:
        asked = str(error.headers.get("Retry-After", ""))
        raise _Interrupted(said, float(asked) if asked.isdecimal() else 0.0)
    raise DownloadError(f"cannot download {target.url}: {said}; name a mirror with --from")


def _wrong(target: _Target, why: str) -> DownloadError:
    return DownloadError(
        f"{target.url} is not the published file: {why}; name a mirror with --from"
    )


def _there(target: _Target) -> int:
    """Return the bytes of the part; one that is too long is removed."""
    try:
        size = target.part.stat().st_size
    except FileNotFoundError:
        return 0
    if size > target.size:
        remove(target.part)
        return 0
    return size


def _fits(target: _Target, path: Path) -> bool:
    """Return whether a file has the size and the checksum of the published one."""
    if path.stat().st_size != target.size:
        return False
    with open(path, "rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False))
    return digest.hexdigest() == target.md5
