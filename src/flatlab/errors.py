"""The error family: every message says what was given, what is allowed, what to do.

A command maps an error to its exit code and prints one line; nobody sees a traceback for a
mistake of their own.
"""

from __future__ import annotations

import difflib
import math
import numbers
import os
import stat
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# What code of a user's own may raise: sys.exit() in it does not end the program without a word.
FAILURES = (Exception, SystemExit)
LONGEST = 300
"""Characters that are shown of an error of somebody else's code."""


class FlatlabError(Exception):
    """Any failure flatlab foresees. `exit_code` is what a command returns for it."""

    exit_code = 2

    def __str__(self) -> str:
        """Return the message in one line, even if it shows a value of several."""
        return " ".join(super().__str__().splitlines())


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
    close = difflib.get_close_matches(str(given), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(name) for name in close)}? " if close else ""
    return f"{hint}Allowed: {', '.join(names)}" if hint else f"allowed: {', '.join(names)}"


def unknown(kind: str, given: str, allowed: Iterable[str]) -> UserError:
    """Build the error for a name that does not exist.

    >>> str(unknown("loss", "msee", ["mse", "logistic"]))
    "unknown loss 'msee': did you mean 'mse'? Allowed: logistic, mse"
    """
    return UserError(f"unknown {kind} {given!r}: {nearest(given, allowed)}")


def whole_number(name: str, value: object, least: int | None = None) -> int:
    """Return a whole number as an int; True, 2.5 and "2" are refused.

    >>> whole_number("epochs", 1e5)
    100000
    >>> whole_number("n", 0, least=1)
    Traceback (most recent call last):
    flatlab.errors.UserError: n must be >= 1, got 0
    """
    value = whole(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(f"{name} must be a whole number, got {value!r}")
    if least is not None and value < least:
        raise UserError(f"{name} must be >= {least}, got {value}")
    return value


def whole(value: Any) -> Any:
    """Return a number of numpy as Python's, and a float that is a whole number as an int.

    >>> whole(1e5), whole(0.5), whole("2")
    (100000, 0.5, '2')
    """
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # of numpy or torch
        value = value.item()
    return int(value) if isinstance(value, float) and value.is_integer() else value


def positive(name: str, value: object) -> float:
    """Return a finite number > 0; True and "2" are refused.

    >>> positive("radius", 0)
    Traceback (most recent call last):
    flatlab.errors.UserError: radius must be > 0 and finite, got 0
    """
    good = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not good or not 0 < value < math.inf:  # type: ignore[operator]
        raise UserError(f"{name} must be > 0 and finite, got {shown(value)}")
    return float(value)  # type: ignore[arg-type]


def truth(name: str, value: object) -> bool:
    """Return a truth value, also one of numpy; 1, "no" and None are refused.

    >>> truth("fresh", "no")
    Traceback (most recent call last):
    flatlab.errors.UserError: fresh must be True or False, got 'no'
    """
    value = getattr(value, "item", lambda: value)() if getattr(value, "ndim", None) == 0 else value
    if not isinstance(value, bool):
        raise UserError(f"{name} must be True or False, got {shown(value)}")
    return value


def shown(value: object) -> str:
    """Show what was given: a plain value as it is written, anything else by its type.

    >>> shown("no"), shown(None), shown([1, 2])
    ("'no'", 'None', 'list of 2')
    """
    return repr(value) if isinstance(value, str | int | float | None) else in_words(value)


def require_path(name: str, value: object, wanted: str = "a path") -> Path:
    """Return a path, with ~ as the user's home; refuse what is not a path that a file can have."""
    if not isinstance(value, str | os.PathLike):
        raise UserError(f"{name} must be {wanted}, got {shown(value)}")
    text = os.fspath(value)
    if not isinstance(text, str):
        raise UserError(f"{name} must be {wanted} as a string, got {value!r}")
    if not text:
        raise UserError(f"{name} must be {wanted}, got '': name one (. is the current one)")
    if "\0" in text:
        raise UserError(f"{name} must be {wanted}, got {text!r}, which has a null character")
    return Path(os.path.expanduser(text))


def require_file(path: Path) -> None:
    """Refuse a pipe or a device: reading it may never end. A missing file is not refused here."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError(f"{path} is a pipe or a device: give a file, e.g. copy its content to one")


def listed(words: Iterable[object], most: int | None = None) -> str:
    """Write words or numbers as a list; with `most`, count those after the first few.

    >>> listed(["a", "b", "c"]), listed([3]), listed([]), listed(range(9), most=5)
    ('a, b and c', '3', 'none', '0, 1, 2, 3, 4 and 4 more')
    """
    texts = [str(word) for word in words]
    if most is not None and len(texts) > most:
        texts = [*texts[:most], f"{len(texts) - most} more"]
    if len(texts) < 2:
        return texts[0] if texts else "none"
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def in_words(item: Any) -> str:
    """Name what was given by its type, and a list or tuple by its length too.

    >>> in_words((1, 2, 3)), in_words("abc")
    ('tuple of 3', 'str')
    """
    kind = type(item).__name__
    return f"{kind} of {len(item)}" if isinstance(item, list | tuple) else kind


def message_of(error: BaseException) -> str:
    """Return an error's message; "" if the user's own class cannot write it."""
    try:
        return str(error)
    except FAILURES:
        return ""


def described(error: BaseException) -> str:
    """Say in one line what an error in a user's own code is, and where it was raised.

    >>> described(KeyError("age")), described(AssertionError())
    ("KeyError: 'age'", 'AssertionError')
    >>> try:
    ...     {}["age"]
    ... except KeyError as error:
    ...     described(error)
    "KeyError: 'age' (in <doctest ...>, line 2)"
    """
    own = message_of(error).partition("\nException raised from ")[0]  # without torch's C++ frames
    text = " ".join(own.split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
    says = f"{type(error).__name__}: {text}".removesuffix(": ")
    if error.__traceback__ is None:  # it was made, not raised
        return says
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{says} (in {last.filename}, line {last.lineno})"
