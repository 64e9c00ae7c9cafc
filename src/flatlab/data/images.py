"""Images of published sets: class-balanced subsets, standardised, optionally pooled.

Files are found by `sources` and read in any form of `forms`. Pixels stay uint8 until the images are
chosen; only those are standardised.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, whole_number
from ..specs import Plain
from . import _checks as check
from .arrays import content_digest
from .dataset import Dataset
from .places import folders
from .sets import CLASSES, SETS, FourArrays, ImageSet, Pixels
from .sources import Source, Subset, again, find, missing

BLOCK = 1000  # images that are standardised at a time, so that copies of them stay small


def images(
    name: str,
    n: int | None = None,
    n_test: int | None = None,
    size: int | None = None,
    sha256: str | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Return images as float32 of shape (n, channels, side, side), with integer classes.

    A subset takes the first images of each class, in the published order. If n is not a multiple
    of the number of classes, the first classes have one image more. Every channel is standardised:
    the chosen training images have mean 0 and standard deviation 1, and the test images are shifted
    and scaled by the same two numbers.

    Args:
        name: "cifar10" or "fashion_mnist".
        n: Number of training images, at least one of each class; by default all there are.
        n_test: Number of test images; by default all there are.
        size: Side after average pooling: 16 or 8 for CIFAR-10, 14 or 7 for Fashion-MNIST.
        sha256: Expected digest of the chosen images. If several forms of the set are there, the one
            with these images is used; without one, other images are an error.
        directory: The folder to look in; by default the environment variable FLATLAB_DATA, then the
            user's cache, where `flatlab data get` puts what it downloads.
    """
    image_set = SETS[check.choice("image set", name, SETS)]
    spec: dict[str, Plain] = {"name": name}
    if n is not None:
        spec["n"] = n = whole_number("n", n, CLASSES)
    if n_test is not None:
        spec["n_test"] = n_test = whole_number("n_test", n_test, 0)
    side = image_set.side if size is None else whole_number("size", size, 1)
    if side not in image_set.sizes:
        raise UserError(f"size must be one of {', '.join(map(str, image_set.sizes))}, got {side}")
    if side != image_set.side:
        spec["size"] = side
    check.digest_text(sha256)
    # The digest is computed from the pixels, so it does not depend on the standardisation.
    raw, spec["sha256"] = _chosen(image_set, folders(directory), n, n_test, sha256)
    x, x_other = _standardised(*(_pooled(part, image_set.side // side) for part in raw[::2]))
    return Dataset(x, raw[1], x_other, raw[3], name=name, seed=0, spec=spec, classes=CLASSES)


def cifar10(
    n: int | None = None,
    n_test: int | None = None,
    size: int | None = None,
    sha256: str | None = None,
) -> Dataset:
    """CIFAR-10: colour images of 10 classes, 32×32 or pooled to 16×16 or 8×8, standardised."""
    return images("cifar10", n, n_test, size, sha256)


def fashion_mnist(
    n: int | None = None,
    n_test: int | None = None,
    size: int | None = None,
    sha256: str | None = None,
) -> Dataset:
    """Fashion-MNIST: grey images of 10 classes, 28×28 or pooled to 14×14 or 7×7, standardised."""
    return images("fashion_mnist", n, n_test, size, sha256)


def _chosen(
    image_set: ImageSet, where: list[Path], n: int | None, n_test: int | None, sha256: str | None
) -> tuple[FourArrays, str]:
    """Return the chosen images and labels and their digest.

    Without an expected digest the first source is used. With one, each source is tried until the
    digest fits: a run on a subset finds its images also after the whole set was downloaded.
    """
    sources = find(image_set, where)
    if not sources:
        raise missing(image_set.name, where)
    refusals: list[UserError] = []
    for source in sources if sha256 is not None else sources[:1]:
        try:
            raw = _of_each_class(source, n, n_test)
            digest = content_digest(raw, CLASSES)
            check.unchanged(f"{image_set.name} in {source.place}", digest, sha256)
            return raw, digest
        except UserError as error:
            refusals.append(error)
    raise refusals[0]


def _of_each_class(source: Source, n: int | None, n_test: int | None) -> FourArrays:
    """Return the first images of each class."""
    x_train, y_train, x_test, y_test = source.read()
    try:
        train, test = _first_of_each("n", y_train, n), _first_of_each("n_test", y_test, n_test)
    except UserError as error:
        if not isinstance(source, Subset):
            raise
        whole = source.image_set
        raise UserError(
            f"{error}: {source.path} is a part of the set; {again(whole.name, source.folder)} all "
            f"{whole.train:,} training and {whole.test:,} test images"
        ) from None
    return x_train[train], y_train[train], x_test[test], y_test[test]


def _first_of_each(name: str, labels: Pixels, n: int | None) -> NDArray[np.int64]:
    """Return the indices of n examples, equally many of each class, in the published order."""
    if n is None:
        return np.arange(len(labels))
    wanted = [n // CLASSES + (label < n % CLASSES) for label in range(CLASSES)]
    places = [np.flatnonzero(labels == label) for label in range(CLASSES)]
    there = [len(place) for place in places]
    if any(has < needs for has, needs in zip(there, wanted, strict=True)):
        least = min(there)
        raise UserError(
            f"{name} must be <= {CLASSES * least + there.index(least)} for classes of equal size, "
            f"got {n}"
        )
    chosen = [place[:count] for place, count in zip(places, wanted, strict=True)]
    return np.sort(np.concatenate(chosen))


def _pooled(x: Pixels, width: int) -> NDArray[Any]:
    """Return the sums over blocks of width × width pixels, exact integers.

    After standardising, sums and averages are equal.
    """
    if width == 1:
        return x
    n, channels, side, _ = x.shape
    blocks = x.reshape(n, channels, side // width, width, side // width, width)
    sums: NDArray[Any] = blocks.sum(axis=(3, 5), dtype=np.uint32)
    return sums


def _standardised(*parts: NDArray[Any]) -> Iterator[NDArray[np.float32]]:
    """Yield every part with each channel shifted and scaled so that the first has mean 0, std 1.

    Mean and deviation come from exact integer sums, so every machine gets the same bits. A constant
    channel is only shifted. Pixels have few values, so each value is standardised once, in a table.
    """
    values = np.arange(1 + max(int(part.max(initial=0)) for part in parts))
    moments = [_mean_and_std(values, channel) for channel in np.moveaxis(parts[0], 1, 0)]
    tables = [((values - shift) / scale).astype(np.float32) for shift, scale in moments]
    for part in parts:
        made = np.empty(part.shape, np.float32)
        for rows in _blocks(len(part)):
            for channel, table in enumerate(tables):
                made[rows, channel] = table[part[rows, channel]]
        made.setflags(write=False)  # so that the data set takes it without a copy
        yield made


def _mean_and_std(values: NDArray[np.int64], channel: NDArray[Any]) -> tuple[float, float]:
    counts = np.zeros(len(values), np.int64)
    for rows in _blocks(len(channel)):
        counts += np.bincount(channel[rows].ravel(), minlength=len(values))
    count, total, squares = (int((counts * values**power).sum()) for power in range(3))
    variance = (count * squares - total**2) / count**2
    return total / count, math.sqrt(variance) or 1.0


def _blocks(count: int) -> Iterator[slice]:
    return (slice(first, first + BLOCK) for first in range(0, count, BLOCK))
