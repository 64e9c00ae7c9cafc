"""CIFAR's python form: pickled dictionaries, read without running what a pickle may contain.

A pickle names functions to call. This reader supplies stand-ins for the few that numpy's arrays
need, refuses every other name, and makes the array itself from the bytes and the shape.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from . import records
from ._checks import labels_in_range

if TYPE_CHECKING:
    from .sets import ImageSet, PublishedFile

MOST_BYTES = 2  # a pickle is at most this many times as large as the records it holds


class _Type:
    """Stands for numpy's dtype: keeps the code of the type."""

    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment, which bytes do not have."""


class _Array:
    """Stands for an array: keeps its shape, type, order and bytes."""

    parts: tuple[Any, Any, Any, Any] = (None, None, None, None)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        self.parts = shape, kind, fortran, data

    def array(self) -> NDArray[np.uint8]:
        """Return the array, if it is one of unsigned bytes."""
        shape, kind, fortran, data = self.parts
        code = getattr(kind, "code", None)
        if code not in ("u1", b"u1") or not isinstance(data, bytes | bytearray):
            raise UserError("must hold an array of unsigned bytes")
        made = np.frombuffer(bytes(data), np.uint8)
        return made.reshape(tuple(shape), order="F" if fortran in (True, 1) else "C")


def _reconstructed(*_: Any) -> _Array:
    return _Array()


def _from_buffer(data: Any, kind: Any, shape: Any, order: Any = "C") -> _Array:
    made = _Array()
    made.parts = shape, kind, order == "F", data
    return made


def _encoded(text: Any, *_: Any) -> bytes:
    return str(text).encode("latin1")


_STANDS_FOR: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encoded,  # how protocol 2 writes bytes
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstructed for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
}


class _Reader(pickle.Unpickler):
    """Unpickles plain values and stand-ins for arrays; any other name is refused."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STANDS_FOR[module, name]
        except KeyError:
            raise UserError(f"names {module}.{name}, which no data batch needs") from None


def read(path: Path, file: PublishedFile, image_set: ImageSet) -> bytes:
    """Return the images and labels of a pickled batch as records."""
    if (size := path.stat().st_size) > MOST_BYTES * file.size:
        raise UserError(f"has {size} bytes, too many for a batch")
    try:
        with path.open("rb") as stream:
            batch = _Reader(stream, encoding="bytes").load()
        plain = {key.decode() if isinstance(key, bytes) else key: batch[key] for key in batch}
        pixels, labels = plain["data"].array(), np.array(plain["labels"])
    except UserError:
        raise
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise UserError(f"is truncated or no pickled batch ({type(error).__name__})") from None
    count = records.count(image_set, file.size)
    values = image_set.channels * image_set.side**2
    if pixels.shape != (count, values):
        raise UserError(f"must hold data of shape {(count, values)}, got shape {pixels.shape}")
    if labels.shape != (count,) or labels.dtype.kind != "i":
        raise UserError(f"must hold {count} whole numbers as labels, got shape {labels.shape}")
    labels_in_range(labels)
    return records.joined(labels.astype(np.uint8), pixels)
