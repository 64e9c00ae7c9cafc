"""A data set: validated, read-only arrays and the spec that makes them again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, whole_number
from ..specs import Plain

Array = NDArray[np.float64]

COMPACT = (np.dtype(np.float32), np.dtype(np.uint8))
"""Types that inputs with more than two axes keep; every other input becomes float64."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples of one regression or classification problem.

    Arrays are C-contiguous and read-only, and every value is finite. Inputs of shape (n, d) are
    float64, because theorems are decided on them. Inputs with more axes, such as images, stay
    float32 or uint8 if given in that type; if the training and the test part differ in type, both
    get the type that holds both.

    Attributes:
        x_train: Inputs, shape (n, *shape), n ≥ 1: (n, d) for points, (n, channels, height, width)
            for images.
        y_train: Labels. Without `classes`: float64, shape (n,), or (n, k) for k ≥ 2 targets each.
            With `classes`: int64, shape (n,), from 0 to classes − 1.
        x_test: Test inputs, shape (n_test, *shape); n_test may be 0.
        y_test: Test labels, as y_train.
        name: Its name in tables.
        seed: The seed it was drawn with; 0 if nothing was drawn.
        spec: Plain values from which `make` makes it again: its catalogue name under "name", and
            the keyword arguments.
        relevant: Coordinates the label depends on (from 0); empty when unknown.
        classes: Number of classes, at least 2, if the labels are classes; None otherwise.

    >>> images = np.zeros((6, 1, 4, 4), np.float32)
    >>> data = Dataset(images, [0, 1, 2] * 2, images[:0], [], "blank", 0, {}, classes=3)
    >>> data.n, data.shape, data.d, data.outputs, data.y_train.dtype
    (6, (1, 4, 4), 16, 3, dtype('int64'))
    """

    x_train: NDArray[Any] = field(repr=False)
    y_train: NDArray[Any] = field(repr=False)
    x_test: NDArray[Any] = field(repr=False)
    y_test: NDArray[Any] = field(repr=False)
    name: str
    seed: int
    spec: dict[str, Plain]
    relevant: tuple[int, ...] = ()
    classes: int | None = None

    def __repr__(self) -> str:
        labels = f", {self.classes} classes" if self.classes else ""
        return (
            f"Dataset({self.name}, seed {self.seed}: {self.n:,} training and "
            f"{len(self.x_test):,} test examples of shape {self.shape}{labels})"
        )

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the class is frozen
        if self.classes is not None:
            set_field(self, "classes", whole_number("classes", self.classes, 2))
        for part in ("train", "test"):
            x, y = f"x_{part}", f"y_{part}"
            set_field(self, x, _inputs(x, getattr(self, x)))
            set_field(self, y, _labels(y, getattr(self, y), self.classes))
        common = np.promote_types(self.x_train.dtype, self.x_test.dtype)
        set_field(self, "x_train", _read_only(self.x_train, common))
        set_field(self, "x_test", _read_only(self.x_test, common))
        set_field(self, "spec", _plain(self.spec))
        set_field(self, "relevant", tuple(self.relevant))
        self._check_shapes()
        for name in ("x_train", "y_train", "x_test", "y_test"):
            _check_finite(name, getattr(self, name))
        for index in self.relevant:
            if not 0 <= index < self.d:
                raise UserError(f"relevant must lie in 0..{self.d - 1}, got {index}")

    def _check_shapes(self) -> None:
        given = self.x_train.shape
        if len(given) < 2:
            raise UserError(
                "x_train must have shape (n, d), or (n, channels, height, width) for images, "
                f"got shape {given}"
            )
        if 0 in given:
            raise UserError(
                f"x_train must hold at least one example and one coordinate, got shape {given}"
            )
        if self.x_test.ndim == 0 or self.x_test.shape[1:] != self.shape:
            expected = ", ".join(["n_test", *map(str, self.shape)])
            raise UserError(
                f"x_test must have shape ({expected}) like x_train, got shape {self.x_test.shape}"
            )
        targets = self.y_train.shape[1:]
        several = self.classes is None and len(targets) == 1 and targets[0] >= 2
        if self.y_train.shape[:1] != (self.n,) or (targets and not several):
            also = "" if self.classes else f" or ({self.n}, k) with k >= 2"
            raise UserError(
                f"y_train must have shape ({self.n},){also}, one label for each row of x_train, "
                f"got shape {self.y_train.shape}"
            )
        if self.y_test.shape != (expected_shape := (len(self.x_test), *targets)):
            raise UserError(
                f"y_test must have shape {expected_shape}, one label for each row of x_test, "
                f"got shape {self.y_test.shape}"
            )

    @property
    def n(self) -> int:
        """Number of training examples."""
        return len(self.x_train)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input: (d,) for points, (channels, height, width) for images."""
        return self.x_train.shape[1:]

    @property
    def d(self) -> int:
        """Number of values of one input."""
        return math.prod(self.shape)

    @property
    def outputs(self) -> int:
        """Number of outputs a network needs: one for each class or target."""
        return self.classes or math.prod(self.y_train.shape[1:])

    def require_points(self, what: str) -> None:
        """Raise unless inputs have shape (n, d) and labels are real numbers, as `what` needs."""
        if len(self.shape) != 1 or self.classes or self.y_train.ndim != 1:
            labels = f"{self.classes} classes" if self.classes else f"shape {self.y_train.shape}"
            raise UserError(
                f"{what} needs inputs of shape (n, d) and real labels of shape (n,), "
                f"got inputs of shape {self.x_train.shape} and labels of {labels}"
            )


def real_numbers(name: str, value: object) -> NDArray[Any]:
    """Return an array of booleans, integers or floats; a tensor of torch becomes one."""
    try:
        given = _values(name, value) if hasattr(value, "detach") else np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(f"{name} is not an array: {str(error).splitlines()[0]}") from None
    if given.dtype.kind not in "biuf":
        raise UserError(f"{name} must hold real numbers, got dtype {given.dtype}")
    if isinstance(value, np.ma.MaskedArray) and (hidden := np.ma.getmaskarray(value)).any():
        where = _first(name, given, hidden).partition(" is ")[0]
        raise UserError(f"{where} is masked: fill masked values, or leave their examples out")
    return given


def _values(name: str, tensor: Any) -> NDArray[Any]:
    """Return the values of a tensor, wherever and however it holds them."""
    if tensor.is_meta:
        raise UserError(f"{name} is a tensor on the device 'meta', without values: give real ones")
    dense = tensor.detach().to_dense() if "strided" not in str(tensor.layout) else tensor.detach()
    plain = dense.cpu().resolve_conj().resolve_neg()
    try:
        return np.asarray(plain.numpy())
    except TypeError:  # a type that numpy lacks, as bfloat16
        return np.asarray(plain.float().numpy())


def _inputs(name: str, value: object) -> NDArray[Any]:
    given = real_numbers(name, value)
    native = given.dtype.newbyteorder("=")
    compact = given.ndim > 2 and native in COMPACT
    return _read_only(given, native if compact else np.dtype(np.float64))


def _labels(name: str, value: object, classes: int | None) -> NDArray[Any]:
    given = real_numbers(name, value)
    if classes is None:
        return _read_only(given, np.dtype(np.float64))
    _check_finite(name, given)
    wrong = (given < 0) | (given >= classes) | (given != np.floor(given))
    if wrong.any():
        raise UserError(
            f"{_first(name, given, wrong)}: with classes={classes} "
            f"every label must be a whole number from 0 to {classes - 1}"
        )
    return _read_only(given, np.dtype(np.int64))


def _read_only(given: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a read-only C-contiguous copy, or the array itself if it already is one."""
    flags = given.flags
    if given.dtype == dtype and flags.c_contiguous and flags.owndata and not flags.writeable:
        return given
    with np.errstate(over="ignore"):  # a long double beyond float64 becomes inf
        made = np.array(given, dtype=dtype, order="C")
    made.setflags(write=False)
    return made


def _check_finite(name: str, array: NDArray[Any]) -> None:
    if array.dtype.kind == "f" and not (finite := np.isfinite(array)).all():
        raise UserError(f"{_first(name, array, ~finite)}: every value must be finite")


def _first(name: str, array: NDArray[Any], wrong: NDArray[np.bool_]) -> str:
    """Say where the first wrong value is, and what it is."""
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    where = f"[{', '.join(map(str, index))}]" if index else ""
    return f"{name}{where} is {array[index]}"


def _plain(spec: dict[str, Plain]) -> dict[str, Plain]:
    for name, value in spec.items():
        if not isinstance(value, bool | int | float | str):
            raise UserError(f"spec[{name!r}] must be a plain value, got {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"spec[{name!r}] must be finite, got {value}")
    return dict(spec)
