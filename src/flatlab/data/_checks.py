"""Argument checks of all generators; each returns the value as a plain Python value."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from ..errors import UserError, unknown

MAX_VALUES = 2**31
"""Largest array a generator makes: 16 GiB of float64."""


def real(name: str, value: object, above: float) -> float:
    """Return a finite number > `above`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise UserError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UserError(f"{name} must be finite, got {number:g}")
    if number <= above:
        raise UserError(f"{name} must be > {above:g}, got {number:g}")
    return number


def flag(name: str, value: object) -> bool:
    """Return a truth value; 1 and "yes" are not truth values."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be true or false, got {value!r}")
    return value


def choice(kind: str, value: object, allowed: Iterable[str]) -> str:
    """Return a name that is in `allowed`."""
    if not isinstance(value, str):
        raise UserError(f"{kind} must be a name, got {value!r}")
    if value not in (names := list(allowed)):
        raise unknown(kind, value, names)
    return value


def size(name: str, rows: int, d: int) -> None:
    """Refuse an array of rows × d values that is too large for a laptop."""
    if rows * d > MAX_VALUES:
        raise UserError(f"{name} * d must be <= 2^31 values (16 GiB), got {name}={rows} and d={d}")


def distinct(name: str, count: int, exponent: str, d: int) -> None:
    """Refuse more distinct points than the cube {±1}^d has; messages print `exponent` for d."""
    # bit_length comes first: count > 2^d implies it, and it avoids computing 2^d for a large d.
    if count.bit_length() > d and count > 2**d:
        raise UserError(
            f"{name} must be <= 2^{exponent} for distinct points, "
            f"got {name}={count}, 2^{exponent}={2**d}"
        )


def digest_text(sha256: object) -> None:
    """Refuse an expected digest that is not a string."""
    if sha256 is not None and not isinstance(sha256, str):
        raise UserError(f"sha256 must be a string of hexadecimal digits, got {sha256!r}")


def unchanged(source: str, found: str, expected: str | None) -> None:
    """Refuse content whose digest is not the expected one; None accepts any content."""
    if expected is not None and found != expected.lower():
        raise UserError(
            f"{source}: content changed, sha256 is {found[:12]}… and {expected[:12]}… was "
            "expected: restore the file, or drop sha256 to accept it"
        )


def labels_in_range(labels: NDArray[Any], classes: int = 10) -> None:
    """Refuse labels that are no class."""
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        place = int(wrong.argmax())
        raise UserError(
            f"label {place} is {labels[place]}: every label must be from 0 to {classes - 1}"
        )
