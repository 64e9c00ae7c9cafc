"""What a data set is: validated, read-only arrays and the spec that makes them again."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

Array = NDArray[np.float64]
Plain = bool | int | float | str


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples of one regression or ±1-classification problem.

    Arrays are copied to float64, C-contiguous and read-only; every value is finite.

    Attributes:
        x_train: Inputs, shape (n, d), n ≥ 1 and d ≥ 1.
        y_train: Labels, shape (n,).
        x_test: Test inputs, shape (n_test, d); n_test may be 0.
        y_test: Test labels, shape (n_test,).
        name: How to call it in a table.
        seed: The seed it was drawn with; 0 when nothing was drawn.
        spec: Plain values that make it again with `make`: its catalogue name under "name" and the
            keyword arguments.
        relevant: Coordinates the label depends on (from 0); empty when unknown.
    """

    x_train: Array = field(repr=False)
    y_train: Array = field(repr=False)
    x_test: Array = field(repr=False)
    y_test: Array = field(repr=False)
    name: str
    seed: int
    spec: dict[str, Plain]
    relevant: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            object.__setattr__(self, name, real_array(name, getattr(self, name)))
        object.__setattr__(self, "spec", _plain(self.spec))
        object.__setattr__(self, "relevant", tuple(self.relevant))
        if self.x_train.ndim != 2:
            raise UserError(f"x_train must be 2-D (n, d), got shape {self.x_train.shape}")
        if 0 in self.x_train.shape:
            raise UserError(
                f"x_train must hold at least one example and one coordinate, "
                f"got shape {self.x_train.shape}"
            )
        if self.x_test.ndim != 2 or self.x_test.shape[1] != self.d:
            raise UserError(
                f"x_test must be 2-D with the {self.d} columns of x_train, "
                f"got shape {self.x_test.shape}"
            )
        for part in ("train", "test"):
            rows, y = len(getattr(self, f"x_{part}")), getattr(self, f"y_{part}")
            if y.shape != (rows,):
                raise UserError(
                    f"y_{part} must have shape ({rows},), one label for each row of x_{part}, "
                    f"got shape {y.shape}"
                )
        for name in ("x_train", "y_train", "x_test", "y_test"):
            _check_finite(name, getattr(self, name))
        for index in self.relevant:
            if not 0 <= index < self.d:
                raise UserError(f"relevant must lie in 0..{self.d - 1}, got {index}")

    @property
    def n(self) -> int:
        """Number of training examples."""
        return len(self.x_train)

    @property
    def d(self) -> int:
        """Input dimension."""
        return int(self.x_train.shape[1])


def real_array(name: str, value: object) -> Array:
    """Return a read-only float64 copy of an array of booleans, integers or floats."""
    try:
        given = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(f"{name} is not an array: {str(error).splitlines()[0]}") from None
    if given.dtype.kind not in "biuf":
        raise UserError(f"{name} must hold real numbers, got dtype {given.dtype}")
    with np.errstate(over="ignore"):  # a long double beyond float64 is reported as inf
        made = np.array(given, dtype=np.float64, order="C")
    made.setflags(write=False)
    return made


def _check_finite(name: str, array: Array) -> None:
    finite = np.isfinite(array)
    if not finite.all():
        index = np.unravel_index(int(np.argmin(finite)), array.shape)
        where = ", ".join(str(part) for part in index)
        raise UserError(f"{name}[{where}] is {array[index]}: every value must be finite")


def _plain(spec: dict[str, Plain]) -> dict[str, Plain]:
    for name, value in spec.items():
        if not isinstance(value, bool | int | float | str):
            raise UserError(f"spec[{name!r}] must be a plain value, got {value!r}")
        if isinstance(value, numbers.Real) and not math.isfinite(value):
            raise UserError(f"spec[{name!r}] must be finite, got {value}")
    return dict(spec)
