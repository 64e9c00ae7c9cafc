"""The idx form of MNIST and its successors: a header with the sizes, then bytes.

The header is four bytes (two zeros, the type, the number of axes) and each size as a big-endian
32-bit integer. Type 8 is an unsigned byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UserError
from ._checks import labels_in_range

if TYPE_CHECKING:
    from .sets import FourArrays, ImageSet, Pixels


def check(image_set: ImageSet, name: str, data: bytes) -> None:
    """Refuse a file of another shape, and labels that are no class."""
    found = parsed(data)
    count = image_set.train if name.startswith("train") else image_set.test
    image = "images" in name
    expected = (count, image_set.side, image_set.side) if image else (count,)
    if found.shape != expected:
        raise UserError(f"must hold an array of shape {expected}, got shape {found.shape}")
    if not image:
        labels_in_range(found)


def arrays(image_set: ImageSet, contents: Sequence[bytes]) -> FourArrays:
    """Return the images and labels of the four files."""
    x, y, x_test, y_test = (parsed(data) for data in contents)
    return x[:, None], y, x_test[:, None], y_test


def parsed(data: bytes) -> Pixels:
    """Return the array of bytes in an idx file.

    >>> parsed(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])).tolist()
    [[1, 2, 3], [4, 5, 6]]
    """
    if data[:3] != b"\0\0\x08" or len(data) < 4 or len(data) < 4 + 4 * data[3]:
        raise UserError("is not an idx file of unsigned bytes")
    start = 4 + 4 * data[3]
    shape = tuple(np.frombuffer(data[4:start], ">u4").tolist())
    if math.prod(shape) != len(data) - start:
        raise UserError(
            f"announces an array of shape {shape} and holds {len(data) - start} bytes: "
            "it is truncated or damaged"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
