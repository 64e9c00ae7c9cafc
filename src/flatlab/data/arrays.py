"""Your own arrays and `.npz` files as data sets. Nothing is unpickled."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError
from .dataset import Array, Dataset, Plain, real_array

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


def from_arrays(
    x_train: ArrayLike,
    y_train: ArrayLike,
    x_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    name: str = "arrays",
) -> Dataset:
    """Make a data set of arrays in memory; without test arrays its test set is empty.

    Args:
        x_train: Inputs, shape (n, d).
        y_train: Labels, shape (n,).
        x_test: Test inputs, shape (n_test, d); give both test arrays or neither.
        y_test: Test labels, shape (n_test,).
        name: How to call it in a table.
    """
    if not isinstance(name, str):
        raise UserError(f"name must be a string, got {name!r}")
    if (x_test is None) != (y_test is None):
        only = "y_test" if x_test is None else "x_test"
        raise UserError(f"give both x_test and y_test or neither, got only {only}")
    x = real_array("x_train", x_train)
    if x_test is None or y_test is None:
        x_test, y_test = np.empty((0, *x.shape[1:])), np.empty(0)
    arrays = _real_arrays([x, y_train, x_test, y_test])
    spec: dict[str, Plain] = {"name": "arrays", "label": name, "sha256": content_digest(arrays)}
    return Dataset(*arrays, name=name, seed=0, spec=spec)


def load(path: str | os.PathLike[str], sha256: str | None = None) -> Dataset:
    """Read an `.npz` file with the arrays x_train, y_train, x_test and y_test.

    Args:
        path: The file; `numpy.savez` writes one.
        sha256: Digest of its content when it was last read; another content is an error.
    """
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"path must be a file name, got {path!r}")
    if sha256 is not None and not isinstance(sha256, str):
        raise UserError(f"sha256 must be a string of hexadecimal digits, got {sha256!r}")
    file = Path(path).expanduser().absolute()
    try:
        arrays = _real_arrays(_read(file))
        digest = content_digest(arrays)
        spec: dict[str, Plain] = {"name": "file", "path": str(file), "sha256": digest}
        data = Dataset(*arrays, name=file.stem, seed=0, spec=spec)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    if sha256 is not None and digest != sha256.lower():
        raise UserError(
            f"{file}: content changed, sha256 is {digest[:12]}… and {sha256[:12]}… was expected: "
            "restore the file, or drop sha256 to accept it"
        )
    return data


def content_digest(arrays: Sequence[Array]) -> str:
    """Return the SHA-256 of the shapes and float64 values of the arrays `KEYS`, in that order.

    It hashes the content and not the file, so compressing an `.npz` again does not change it.
    """
    digest = hashlib.sha256()
    for key, array in zip(KEYS, arrays, strict=True):
        digest.update(f"{key}{array.shape}".encode())
        digest.update(array.astype("<f8", order="C", copy=False).tobytes())
    return digest.hexdigest()


def _real_arrays(values: Sequence[object]) -> tuple[Array, Array, Array, Array]:
    a, b, c, d = (real_array(key, value) for key, value in zip(KEYS, values, strict=True))
    return a, b, c, d


def _read(file: Path) -> list[object]:
    needs = f"an .npz with {', '.join(KEYS)} is needed"
    try:
        if not zipfile.is_zipfile(file):
            file.open("rb").close()  # a missing or forbidden file says so itself
            raise UserError(f"not an .npz file: {needs}")
        with np.load(file, allow_pickle=False) as archive:
            if missing := [key for key in KEYS if key not in archive]:
                raise UserError(f"lacks {', '.join(missing)}: {needs}")
            return [archive[key] for key in KEYS]
    except FileNotFoundError:
        raise UserError("no such file") from None
    except _UNREADABLE as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"cannot be read ({reason}): {needs}, all of plain numbers") from None
