"""The error family: every message says what was given, what is allowed, what to do.

A command maps an error to its exit code and prints one line; nobody sees a traceback for a
mistake of their own.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from numbers import Integral
from typing import Any


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


def whole_number(name: str, value: object, least: int | None = None) -> int:
    """Return a whole number as an int; True, 2.5 and "2" are refused.

    >>> whole_number("n", 0, least=1)
    Traceback (most recent call last):
    flatlab.errors.UserError: n must be >= 1, got 0
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UserError(f"{name} must be a whole number, got {value!r}")
    if least is not None and value < least:
        raise UserError(f"{name} must be >= {least}, got {value}")
    return int(value)


def numbers_in_words(numbers: Iterable[int], most: int = 5) -> str:
    """List a few numbers for a message.

    >>> numbers_in_words([3, 8, 11]), numbers_in_words(range(9))
    ('3, 8 and 11', '0, 1, 2, 3, 4 and 4 more')
    """
    texts = [str(int(number)) for number in numbers]
    if len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most} more"
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]


def in_words(item: Any) -> str:
    """Name what was given by its type, and a list or tuple by its length too.

    >>> in_words((1, 2, 3)), in_words("abc")
    ('tuple of 3', 'str')
    """
    kind = type(item).__name__
    return f"{kind} of {len(item)}" if isinstance(item, list | tuple) else kind


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
    says = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    if error.__traceback__ is None:  # it was made, not raised
        return says
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{says} (in {last.filename}, line {last.lineno})"
