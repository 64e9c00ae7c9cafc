"""The published image sets: their files with checksums, and the archives to download.

A set is identified by the content of its published files, whichever form they have on disk: the
same bytes come from CIFAR's binary files and from its pickles. All checksums are those of the
authors' own archives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from . import idx, records

CLASSES = 10
Pixels = NDArray[np.uint8]
FourArrays = tuple[Pixels, Pixels, Pixels, Pixels]
"""x_train, y_train, x_test, y_test; images have shape (n, channels, side, side)."""


@dataclass(frozen=True)
class PublishedFile:
    """One file of a set: its name, its bytes and the SHA-256 of its content."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Archive:
    """One file to download, and the published files it contains."""

    name: str
    size: int
    md5: str
    holds: tuple[str, ...]


class Layout(Protocol):
    """How the published files of a set hold its images."""

    def check(self, image_set: Any, name: str, data: bytes) -> None:
        """Refuse content whose header or labels are wrong."""

    def arrays(self, image_set: Any, contents: Sequence[bytes]) -> FourArrays:
        """Return the images and labels of all files, given in the order of the set."""


@dataclass(frozen=True)
class ImageSet:
    """One image set: the shape of its images, its published files, and where to get them."""

    name: str
    side: int
    channels: int
    sizes: tuple[int, ...]
    """Possible sides of an image, the original first."""
    train: int
    test: int
    layout: Layout
    files: tuple[PublishedFile, ...]
    folder: str
    """The folder of the files inside a data directory; `flatlab data get` writes them there."""
    url: str
    archives: tuple[Archive, ...]

    @property
    def subset(self) -> str:
        """The name of an `.npz` file that holds some of the images."""
        return f"{self.name}_subset.npz"

    @property
    def stage(self) -> str:
        """The folder of a download that is not done, inside a data directory."""
        return f".{self.name}.part"


def _zipped(name: str, size: int, md5: str) -> Archive:
    return Archive(f"{name}.gz", size, md5, (name,))


_CIFAR10 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
SETS = {
    "cifar10": ImageSet(
        name="cifar10",
        side=32,
        channels=3,
        sizes=(32, 16, 8),
        train=50_000,
        test=10_000,
        layout=records,
        files=tuple(PublishedFile(name, 30_730_000, sha) for name, sha in _CIFAR10.items()),
        folder="cifar-10-batches-bin",
        url="https://www.cs.toronto.edu/~kriz/",
        archives=(
            Archive(
                "cifar-10-binary.tar.gz",
                170_052_171,
                "c32a1d4ab5d03f1284b67883e8d87530",
                tuple(_CIFAR10),
            ),
        ),
    ),
    "fashion_mnist": ImageSet(
        name="fashion_mnist",
        side=28,
        channels=1,
        sizes=(28, 14, 7),
        train=60_000,
        test=10_000,
        layout=idx,
        files=(
            PublishedFile(
                "train-images-idx3-ubyte",
                47_040_016,
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ),
            PublishedFile(
                "train-labels-idx1-ubyte",
                60_008,
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            ),
            PublishedFile(
                "t10k-images-idx3-ubyte",
                7_840_016,
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            ),
            PublishedFile(
                "t10k-labels-idx1-ubyte",
                10_008,
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        ),
        folder="FashionMNIST/raw",
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        archives=(
            _zipped("train-images-idx3-ubyte", 26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            _zipped("train-labels-idx1-ubyte", 29_515, "25c81989df183df01b3e8a0aad5dffbe"),
            _zipped("t10k-images-idx3-ubyte", 4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
            _zipped("t10k-labels-idx1-ubyte", 5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
    ),
}
