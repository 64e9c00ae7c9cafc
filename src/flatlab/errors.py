"""The error family: every message says what was given, what is allowed, what to do.

A command maps an error to its exit code and prints one line; nobody sees a traceback for a
mistake of their own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FlatlabError(Exception):
    """Any failure flatlab foresees. `exit_code` is what a command returns for it."""

    exit_code = 2


class UserError(FlatlabError):
    """The caller gave something that is not allowed."""


class BusyError(FlatlabError):
    """Another process is working on the same run directory."""


class StoreError(FlatlabError):
    """Reading or writing a run directory failed (disk full, damaged file, no permission)."""


def nearest(given: str, allowed: Iterable[str]) -> str:
    """Describe the allowed names, closest to `given` first.

    >>> nearest("paty", ["xor", "parity", "ball"])
    "did you mean 'parity'? Allowed: ball, parity, xor"
    """
    names = sorted(allowed)
    close = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(name) for name in close)}? " if close else ""
    return f"{hint}Allowed: {', '.join(names)}" if hint else f"allowed: {', '.join(names)}"


def unknown(kind: str, given: str, allowed: Iterable[str]) -> UserError:
    """Build the error for a name that does not exist.

    >>> str(unknown("loss", "msee", ["mse", "logistic"]))
    "unknown loss 'msee': did you mean 'mse'? Allowed: logistic, mse"
    """
    return UserError(f"unknown {kind} {given!r}: {nearest(given, allowed)}")
