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

from ..errors import UserError, in_words, require_file, require_path
from ..specs import Plain
from . import _checks as check
from .dataset import Dataset, real_numbers

KEYS = ("x_train", "y_train", "x_test", "y_test")
MANY_CLASSES = 10**6  # labels beyond are taken for something else than classes

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


def as_dataset(given: Any, classes: bool = False) -> Dataset:
    """Return a data set: itself, or made of (x, y) or (x, y, x_test, y_test).

    Arrays may be torch tensors. With `classes` the labels are classes from 0 to the largest.

    >>> as_dataset(([[0.0], [1.0], [2.0]], [2, 0, 1]), classes=True).classes
    3
    """
    if isinstance(given, Dataset):
        return given
    if not isinstance(given, tuple | list) or len(given) not in (2, 4):
        shown = repr(given) if isinstance(given, str | int | float) else in_words(given)
        raise UserError(
            "data must be a Dataset such as flatlab.data.arrays(x, y), or a pair (x, y), or "
            f"(x, y, x_test, y_test), got {shown}"
        )
    names = KEYS if len(given) == 4 else KEYS[:2]
    parts: list[Any] = [
        None if p is None else real_numbers(n, p) for n, p in zip(names, given, strict=True)
    ]
    count = None
    if classes:
        labels = [part for part in parts[1::2] if part is not None]
        largest = max((part.max(initial=1) for part in labels), default=1)
        if MANY_CLASSES < largest < np.inf and largest > 10 * labels[0].size:
            raise UserError(
                f"labels must be classes from 0 to the number of classes − 1, and these reach "
                f"{largest:g}: number the classes, e.g. numpy.unique(y, return_inverse=True)[1]"
            )
        count = 1 + int(largest) if np.isfinite(largest) else 2  # `arrays` names what is not finite
    x, y, x_test, y_test = (*parts, None, None)[:4]
    return arrays(x, y, x_test, y_test, classes=count)


def load(path: str | os.PathLike[str], sha256: str | None = None) -> Dataset:
    """Read an `.npz` file with the arrays x_train, y_train, x_test and y_test.

    The file may also hold the number `classes`; its labels are then classes from 0.

    Args:
        path: The file; `numpy.savez` writes one.
        sha256: Expected digest of its content; other content is an error. With one, a file that is
            gone is looked for under its name in the folder FLATLAB_DATA.
    """
    require_path("path", path)
    check.digest_text(sha256)
    file = Path(path).expanduser().absolute()
    file = _moved(file) if sha256 is not None and not file.exists() else file
    require_file(file)
    try:
        *given, classes = read_npz(file)
        data = _hashed(given, classes, file.stem, {"name": "file", "path": str(file)})
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    check.unchanged(str(file), str(data.spec["sha256"]), sha256)
    return data


def _moved(file: Path) -> Path:
    """Return the file of the same name in the folder FLATLAB_DATA."""
    folder = os.environ.get("FLATLAB_DATA")
    found = Path(folder).expanduser().absolute() / file.name if folder else None
    if found is None or not found.exists():
        looked = f"nor {found}" if found else "and FLATLAB_DATA is not set"
        raise UserError(
            f"{file}: no such file, {looked}: set FLATLAB_DATA to the folder that holds {file.name}"
        )
    return found


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
