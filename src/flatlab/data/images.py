"""Images from the data directory: class-balanced subsets, standardised, optionally pooled."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, whole_number
from . import _checks as check
from .arrays import KEYS, content_digest, read_npz
from .dataset import Dataset, Plain

CLASSES = 10
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class _Kind:
    """One image set: its file, and the side and the number of channels of its images."""

    file: str
    side: int
    channels: int
    sizes: tuple[int, ...]
    """Possible sides of an image, the original first."""


SETS = {
    "cifar10": _Kind("cifar10_subset.npz", 32, 3, (32, 16, 8)),
    "fashion_mnist": _Kind("fashion_mnist_subset.npz", 28, 1, (28, 14, 7)),
}


def images(
    name: str,
    n: int | None = None,
    n_test: int | None = None,
    size: int | None = None,
    sha256: str | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Return images as float32 of shape (n, channels, side, side), with integer classes.

    A subset takes the first images of each class, in the order of the file. If n is not a multiple
    of the number of classes, the first classes have one image more. Every channel is standardised:
    the chosen training images have mean 0 and standard deviation 1, and the test images are shifted
    and scaled by the same two numbers.

    Args:
        name: "cifar10" or "fashion_mnist".
        n: Number of training images, at least one of each class; by default all in the file.
        n_test: Number of test images; by default all in the file.
        size: Side after average pooling: 16 or 8 for CIFAR-10, 14 or 7 for Fashion-MNIST.
        sha256: Expected digest of the chosen images; other images are an error.
        directory: The folder with the files; by default the environment variable FLATLAB_DATA.
    """
    kind = SETS[check.choice("image set", name, SETS)]
    spec: dict[str, Plain] = {"name": name}
    if n is not None:
        spec["n"] = whole_number("n", n, CLASSES)
    if n_test is not None:
        spec["n_test"] = whole_number("n_test", n_test, 0)
    side = kind.side if size is None else whole_number("size", size, 1)
    if side not in kind.sizes:
        raise UserError(f"size must be one of {', '.join(map(str, kind.sizes))}, got {side}")
    if side != kind.side:
        spec["size"] = side
    check.digest(sha256)
    folder = _folder(kind, directory)
    x_train, y_train, x_test, y_test = _read(kind, folder)
    train, test = _first_of_each("n", y_train, n), _first_of_each("n_test", y_test, n_test)
    raw = (x_train[train], y_train[train], x_test[test], y_test[test])
    # The digest is computed from the pixels, so it does not depend on the standardisation.
    spec["sha256"] = digest = content_digest(raw, CLASSES)
    check.unchanged(f"{name} in {folder}", digest, sha256)
    x, x_other = _standardised(*(_pooled(part, kind.side // side) for part in raw[::2]))
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


def _folder(kind: _Kind, directory: str | os.PathLike[str] | None) -> Path:
    folder = directory or os.environ.get("FLATLAB_DATA")
    if not folder:
        raise UserError(f"no data directory: set FLATLAB_DATA to the folder that holds {kind.file}")
    return Path(folder).expanduser()


def _read(kind: _Kind, folder: Path) -> tuple[Pixels, Pixels, Pixels, Pixels]:
    """Return x_train, y_train, x_test and y_test as uint8, the images as (n, channels, h, w)."""
    file = folder / kind.file
    if not file.is_file():
        raise UserError(f"{file} does not exist: set FLATLAB_DATA to the folder that holds it")
    try:
        *arrays, _ = read_npz(file)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    for key, array in zip(KEYS, arrays, strict=True):
        if array.dtype != np.uint8:
            raise UserError(f"{file}: {key} must hold uint8, got dtype {array.dtype}")
    x_train, y_train, x_test, y_test = arrays
    return (
        _channels_first(kind, f"{file}: x_train", x_train, y_train),
        y_train,
        _channels_first(kind, f"{file}: x_test", x_test, y_test),
        y_test,
    )


def _channels_first(kind: _Kind, name: str, x: Pixels, y: Pixels) -> Pixels:
    x = x[..., None] if x.ndim == 3 else x
    expected = (y.size, kind.side, kind.side, kind.channels)
    if x.shape != expected:
        raise UserError(f"{name} must have shape {expected}, got shape {x.shape}")
    return x.transpose(0, 3, 1, 2)


def _first_of_each(name: str, labels: Pixels, n: int | None) -> NDArray[np.int64]:
    """Return the indices of n examples, equally many of each class, in the order of the file."""
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
    channel is only shifted.
    """
    mean, std = zip(*map(_mean_and_std, np.moveaxis(parts[0], 1, 0)), strict=True)
    for part in parts:
        made = np.empty(part.shape, np.float32)
        for channel, (shift, scale) in enumerate(zip(mean, std, strict=True)):
            made[:, channel] = np.subtract(part[:, channel], shift, dtype=np.float64) / scale
        yield made


def _mean_and_std(values: NDArray[Any]) -> tuple[float, float]:
    count = values.size
    total = int(values.sum(dtype=np.int64))
    squares = int(np.square(values, dtype=np.int64).sum())
    variance = (count * squares - total**2) / count**2
    return total / count, math.sqrt(variance) or 1.0
