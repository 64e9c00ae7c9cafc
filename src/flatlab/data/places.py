"""Where data sets are looked for: the folder FLATLAB_DATA, then the user's cache."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..errors import UserError, require_path

VARIABLE = "FLATLAB_DATA"


def cache() -> Path:
    """Return flatlab's folder in the user's cache: XDG_CACHE_HOME or ~/.cache."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    root = given if os.path.isabs(given) else os.path.expanduser("~/.cache")
    if not os.path.isabs(root):
        raise UserError(f"this user has no home folder for a cache: set {VARIABLE} to a folder")
    return Path(root) / "flatlab"


def home() -> Path:
    """Return the folder for downloads: FLATLAB_DATA if it is set, else the cache."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else cache()


def searched() -> list[Path]:
    """Return the folders in which data are looked for; they need not exist."""
    found = [home()] if os.environ.get(VARIABLE) else []
    with contextlib.suppress(UserError):  # there need not be a cache
        found += [cache()] if cache() not in found else []
    return found


def folders(directory: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the folders to look in: the given one alone, or those of `searched`."""
    if directory is not None:
        require_path("directory", directory)
        return [_existing(Path(directory).expanduser(), "")]
    found = searched() or [cache()]  # which says why there is none
    if os.environ.get(VARIABLE):
        _existing(found[0], f", which --data-dir or {VARIABLE} names,")
    return found


def _existing(folder: Path, why: str) -> Path:
    if not os.path.isdir(folder):
        problem = "is not a folder" if os.path.exists(folder) else "does not exist"
        raise UserError(f"the data folder {folder}{why} {problem}: name one that holds data sets")
    return folder
