"""CIFAR's binary form: one record for each image, a byte with its class and then its pixels.

The pixels are the red plane, the green plane and the blue plane, each row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ._checks import labels_in_range

if TYPE_CHECKING:
    from .sets import FourArrays, ImageSet, Pixels


def check(image_set: ImageSet, name: str, data: bytes) -> None:
    """Refuse labels that are no class."""
    labels_in_range(_rows(image_set, data)[:, 0])


def arrays(image_set: ImageSet, contents: Sequence[bytes]) -> FourArrays:
    """Return the images and labels; the last file holds the test set."""
    *train, test = (_rows(image_set, data) for data in contents)
    parts = np.concatenate(train), test
    shape = (-1, image_set.channels, image_set.side, image_set.side)
    (x, y), (x_test, y_test) = ((rows[:, 1:].reshape(shape), rows[:, 0]) for rows in parts)
    return x, y, x_test, y_test


def joined(labels: Pixels, pixels: Pixels) -> bytes:
    """Return labels of shape (n,) and pixels of shape (n, values) as records."""
    return np.concatenate([labels[:, None], pixels], axis=1).tobytes()


def count(image_set: ImageSet, size: int) -> int:
    """Return the number of records in a file of this size."""
    return size // _bytes(image_set)


def _rows(image_set: ImageSet, data: bytes) -> Pixels:
    return np.frombuffer(data, np.uint8).reshape(-1, _bytes(image_set))


def _bytes(image_set: ImageSet) -> int:
    return 1 + image_set.channels * image_set.side**2
