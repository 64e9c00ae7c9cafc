"""Data sets from your own arrays and `.npz` files. Nothing is unpickled."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError
from . import _checks as check
from .dataset import Dataset, Plain, real_numbers

KEYS = ("x_train", "y_train", "x_test", "y_test")

_UNREADABLE = (
    OSError,
    ValueError,  # a pickle, an object array, a null byte in the path
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,  # a compression method zipfile lacks
    RuntimeError,  # an encrypted archive
    MemoryError,  # a damaged header that announces a huge shape
)


def arrays(
    x_train: ArrayLike,
    y_train: ArrayLike,
    x_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    name: str = "arrays",
    classes: int | None = None,
) -> Dataset:
    """Make a data set from arrays in memory; without test arrays its test set is empty.

    Args:
        x_train: Inputs, shape (n, d) or of any other shape (n, …).
        y_train: Labels, shape (n,) or (n, k).
        x_test: Test inputs, shaped like x_train; give both test arrays or neither.
        y_test: Test labels, shaped like y_train.
        name: Its name in tables.
        classes: Number of classes, if the labels are classes from 0 to classes − 1.

    >>> data = arrays([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0, 1, 1], classes=2)
    >>> data.d, data.outputs, data.y_train.tolist()
    (2, 2, [0, 1, 1])
    """
    if not isinstance(name, str):
        raise UserError(f"name must be a string, got {name!r}")
    if (x_test is None) != (y_test is None):
        only = "y_test" if x_test is None else "x_test"
        raise UserError(f"give both x_test and y_test or neither, got only {only}")
    if x_test is None or y_test is None:
        x_test, y_test = _nothing_like("x_train", x_train), _nothing_like("y_train", y_train)
    given = (x_train, y_train, x_test, y_test)
    return _hashed(given, classes, name, {"name": "arrays", "label": name})


from_arrays = arrays


def load(path: str | os.PathLike[str], sha256: str | None = None) -> Dataset:
    """Read an `.npz` file with the arrays x_train, y_train, x_test and y_test.

    The file may also hold the number `classes`; its labels are then classes from 0.

    Args:
        path: The file; `numpy.savez` writes one.
        sha256: Expected digest of its content; other content is an error.
    """
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"path must be a file name, got {path!r}")
    check.digest(sha256)
    file = Path(path).expanduser().absolute()
    try:
        *given, classes = read_npz(file)
        data = _hashed(given, classes, file.stem, {"name": "file", "path": str(file)})
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    check.unchanged(str(file), str(data.spec["sha256"]), sha256)
    return data


def content_digest(arrays: Sequence[NDArray[Any]], classes: int | None) -> str:
    """Return the SHA-256 of the arrays `KEYS`, in that order, and of the number of classes.

    It hashes the content and not the file, so compressing an `.npz` again does not change it.
    An array's type is hashed if it is not float64, and `classes` if it is not None.
    """
    digest = hashlib.sha256()
    for key, array in zip(KEYS, arrays, strict=True):
        little = array.dtype.newbyteorder("<")
        kind = "" if array.dtype == np.float64 else little.str
        digest.update(f"{key}{array.shape}{kind}".encode())
        digest.update(array.astype(little, order="C", copy=False).tobytes())
    if classes is not None:
        digest.update(f"classes{classes}".encode())
    return digest.hexdigest()


def _hashed(
    given: Sequence[Any], classes: int | None, name: str, spec: dict[str, Plain]
) -> Dataset:
    """Make a data set and add the digest of its content to its spec."""
    x_train, y_train, x_test, y_test = given
    made = Dataset(x_train, y_train, x_test, y_test, name, 0, spec, classes=classes)
    content = [getattr(made, key) for key in KEYS]
    return replace(made, spec={**spec, "sha256": content_digest(content, made.classes)})


def _nothing_like(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return an array with no rows, otherwise like the given one."""
    like = real_numbers(name, value)
    return np.empty((0, *like.shape[1:]), like.dtype)


def read_npz(file: Path) -> list[Any]:
    """Return the arrays `KEYS` of an `.npz` file, and its number of classes or None."""
    needs = f"an .npz with {', '.join(KEYS)} is needed"
    try:
        if not zipfile.is_zipfile(file):
            file.open("rb").close()  # raises for a missing or forbidden file
            raise UserError(f"not an .npz file: {needs}")
        with np.load(file, allow_pickle=False) as archive:
            if missing := [key for key in KEYS if key not in archive]:
                raise UserError(f"lacks {', '.join(missing)}: {needs}")
            classes = archive["classes"].tolist() if "classes" in archive else None
            return [*(archive[key] for key in KEYS), classes]
    except FileNotFoundError:
        raise UserError("no such file") from None
    except _UNREADABLE as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"cannot be read ({reason}): {needs}, all of plain numbers") from None
