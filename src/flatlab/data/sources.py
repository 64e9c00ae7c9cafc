"""The image sets that are on this machine: each a form of a set in a folder, to check and to read.

Nothing is used that is not whole: a published file must have its published content, by SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import UserError, require_file
from . import _checks as check
from .arrays import KEYS, read_npz
from .forms import FORMS, Form
from .sets import SETS, FourArrays, ImageSet, Pixels, PublishedFile


@dataclass(frozen=True)
class Published:
    """The published files of a set in one form; some may be missing or damaged."""

    image_set: ImageSet
    form: Form
    folder: Path
    """The data folder in which it was found."""
    place: Path
    """The folder of the files."""

    @property
    def title(self) -> str:
        """The name of the form."""
        return self.form.name

    def path(self, file: PublishedFile) -> Path | None:
        """Return where a file is; None if it is missing."""
        paths = (self.place / name for name in self.form.names(file.name))
        return next((path for path in paths if os.path.exists(path)), None)

    @property
    def complete(self) -> bool:
        """Whether every file is there; its content may still be wrong."""
        return all(self.path(file) for file in self.image_set.files)

    def content(self, file: PublishedFile) -> bytes:
        """Return the published content of a file, checked.

        Raises:
            UserError: The file is missing, truncated or different; the message says what to do.
        """
        remedy = again(self.image_set.name, self.folder)
        path = self.path(file)
        if path is None:
            missing = self.place / self.form.names(file.name)[0]
            raise UserError(
                f"{self.image_set.name} is incomplete, {missing} is missing: {remedy} the set"
            )
        try:
            require_file(path)
            return self._verified(path, file)
        except UserError as error:
            raise UserError(f"{path}: {error}: {remedy} it again") from None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}") from None

    def _verified(self, path: Path, file: PublishedFile) -> bytes:
        data = self.form.read(path, file, self.image_set)
        if len(data) != file.size:
            found = f"{len(data):,}" if len(data) < file.size else f"more than {file.size:,}"
            raise UserError(f"holds {found} bytes and must hold {file.size:,}")
        self.image_set.layout.check(self.image_set, file.name, data)
        found = hashlib.sha256(data).hexdigest()
        if found != file.sha256:
            raise UserError(
                f"wrong checksum, sha256 of its content is {found[:12]}… and the published one "
                f"{file.sha256[:12]}…"
            )
        return data

    def read(self) -> FourArrays:
        """Return all images and labels."""
        contents = [self.content(file) for file in self.image_set.files]
        return self.image_set.layout.arrays(self.image_set, contents)


@dataclass(frozen=True)
class Subset:
    """An `.npz` file with some images of a set, of shape (n, side, side, channels)."""

    image_set: ImageSet
    folder: Path

    title = "npz subset"
    complete = True

    @property
    def place(self) -> Path:
        """The folder of the file."""
        return self.folder

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / self.image_set.subset

    def read(self) -> FourArrays:
        """Return all images and labels."""
        require_file(self.path)
        try:
            *arrays, _ = read_npz(self.path)
        except UserError as error:
            raise UserError(f"{self.path}: {error}") from None
        for key, array in zip(KEYS, arrays, strict=True):
            if array.dtype != np.uint8:
                raise UserError(f"{self.path}: {key} must hold uint8, got dtype {array.dtype}")
        x_train, y_train, x_test, y_test = arrays
        return (
            self._channels_first("x_train", x_train, y_train),
            y_train,
            self._channels_first("x_test", x_test, y_test),
            y_test,
        )

    def _channels_first(self, key: str, x: Pixels, y: Pixels) -> Pixels:
        x = x[..., None] if x.ndim == 3 else x
        side, y_key = self.image_set.side, f"y{key[1:]}"
        if y.ndim != 1:
            raise UserError(f"{self.path}: {y_key} must have shape (n,), got shape {y.shape}")
        expected = (y.size, side, side, self.image_set.channels)
        if x.shape != expected:
            raise UserError(f"{self.path}: {key} must have shape {expected}, got shape {x.shape}")
        try:
            check.labels_in_range(y)
        except UserError as error:
            raise UserError(f"{self.path}: {y_key}: {error}") from None
        return x.transpose(0, 3, 1, 2)


Source = Published | Subset


def find(image_set: ImageSet, folders: Iterable[Path]) -> list[Source]:
    """Return what is there of a set, in the order in which it is to be used.

    The first folder comes first. Inside a folder the whole set comes before a subset, and a form
    with all its files before one that lacks some.
    """
    found: list[Source] = []
    for folder in folders:
        forms = sorted(_published(image_set, folder), key=lambda source: not source.complete)
        subset = Subset(image_set, folder)
        found += [*forms, *([subset] if os.path.exists(subset.path) else [])]
    return found


def _published(image_set: ImageSet, folder: Path) -> Iterator[Published]:
    for form in FORMS[image_set.name]:
        for name in form.places:
            source = Published(image_set, form, folder, folder / name)
            if any(source.path(file) for file in image_set.files):
                yield source


def in_its_place(image_set: ImageSet, folder: Path) -> Published:
    """Return the published files where `flatlab data get` puts them, there or not."""
    return Published(image_set, FORMS[image_set.name][0], folder, folder / image_set.folder)


def again(name: str, folder: Path | None = None) -> str:
    """Return the beginning of a remedy: the command that downloads a set, and "downloads".

    >>> again("cifar10", Path("/data"))
    '`flatlab data get cifar10 --to /data` downloads'
    """
    to = f" --to {shlex.quote(str(folder))}" if folder else ""
    return f"`flatlab data get {name}{to}` downloads"


def partly_downloaded(name: str, folders: Iterable[Path]) -> Path | None:
    """Return the folder in which a download of the set was begun and not ended."""
    return next((at for at in folders if os.path.isdir(at / SETS[name].stage)), None)


def missing(name: str, folders: Sequence[Path]) -> UserError:
    """Return the error for a set of which nothing can be read: how to get it."""
    if folder := partly_downloaded(name, folders):
        return UserError(
            f"{name} is only partly downloaded to {folder}: {again(name, folder)} the rest"
        )
    looked = " or ".join(map(str, folders))
    return UserError(
        f"{name} is not in {looked}: {again(name)} it; or set FLATLAB_DATA to the folder that "
        "holds it"
    )
