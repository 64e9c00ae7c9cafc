"""Image sets from the data directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, unknown

FILES = {"cifar10": "cifar10_subset.npz", "fashion_mnist": "fashion_mnist_subset.npz"}


def images(
    name: str, n: int | None = None, split: str = "train", directory: str | Path | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the first n images as (n, channels, height, width) in [0, 1], and their classes.

    Args:
        name: "cifar10" or "fashion_mnist".
        n: How many; None for all of the split.
        split: "train" or "test".
        directory: Where the npz files are; the environment's FLATLAB_DATA if not given.
    """
    if name not in FILES:
        raise unknown("image set", name, FILES)
    if split not in ("train", "test"):
        raise unknown("split", split, ("train", "test"))
    folder = directory or os.environ.get("FLATLAB_DATA")
    if not folder:
        raise UserError(
            f"no data directory: set FLATLAB_DATA to the folder that holds {FILES[name]}"
        )
    path = Path(folder) / FILES[name]
    if not path.is_file():
        raise UserError(f"{path} does not exist: FLATLAB_DATA must be the folder that holds it")
    with np.load(path, allow_pickle=False) as file:
        x: NDArray[Any] = file[f"x_{split}"][:n]
        y: NDArray[Any] = file[f"y_{split}"][:n]
    if n is not None and not 0 < n <= len(x):
        raise UserError(f"n must be between 1 and the size of the split, got {n} (it has {len(x)})")
    x = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x, np.float32) / np.float32(255), y.astype(np.int64)
