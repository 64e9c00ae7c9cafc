"""What is there of the image sets, in which form, and whether it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import FlatlabError
from .sets import SETS, Archive, ImageSet
from .sources import Published, Source, Subset, find, in_its_place


@dataclass(frozen=True)
class Checked:
    """One form of a set in one folder, and every fault it has."""

    name: str
    form: str
    place: Path
    train: int
    test: int
    files: list[dict[str, Any]] = field(repr=False)
    faults: list[str]

    @property
    def whole(self) -> bool:
        """Whether it can be used."""
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        counts = {"train": self.train, "test": self.test}
        where = {"name": self.name, "form": self.form, "folder": str(self.place)}
        return {**where, **counts, "whole": self.whole, "files": self.files, "faults": self.faults}


def check(
    names: Iterable[str], folders: Iterable[Path], say: Callable[[str], None] = lambda text: None
) -> list[Checked]:
    """Read every file of these sets in these folders and compare it with the published one.

    Args:
        names: Names of image sets.
        folders: Data folders.
        say: Called with the path of each file before it is read.
    """
    folders = list(folders)
    return [checked(source, say) for name in names for source in find(SETS[name], folders)]


def checked(source: Source, say: Callable[[str], None] = lambda text: None) -> Checked:
    """Read every file of a source; see `check`."""
    return _of_subset(source, say) if isinstance(source, Subset) else _of_published(source, say)


def whole_in(image_set: ImageSet, folder: Path) -> Checked | None:
    """Return the first form of the set in a folder that is whole; None if none is."""
    for source in find(image_set, [folder]):
        if isinstance(source, Published) and source.complete and (found := checked(source)).whole:
            return found
    return None


def archives_to_get(image_set: ImageSet, folder: Path) -> list[Archive]:
    """Return the archives of which a file is missing or damaged in this folder."""
    source = in_its_place(image_set, folder)
    faulty = {
        file.name
        for file, found in zip(image_set.files, checked(source).files, strict=True)
        if found["fault"]
    }
    return [archive for archive in image_set.archives if faulty & {*archive.holds}]


def _of_published(source: Published, say: Callable[[str], None]) -> Checked:
    files, faults = [], []
    for file in source.image_set.files:
        path = source.path(file)
        say(str(path or file.name))
        fault = ""
        try:
            source.content(file)
        except FlatlabError as error:
            fault = str(error)
            faults.append(fault)
        where = str(path or source.place / source.form.names(file.name)[0])
        files.append(
            {"path": where, "bytes": path.stat().st_size if path else None}
            | {"sha256": None if fault else file.sha256, "fault": fault}
        )
    counts = (0, 0) if faults else (source.image_set.train, source.image_set.test)
    return Checked(source.image_set.name, source.title, source.place, *counts, files, faults)


def _of_subset(source: Subset, say: Callable[[str], None]) -> Checked:
    say(str(source.path))
    counts, fault = (0, 0), ""
    try:
        _, y_train, _, y_test = source.read()
        counts = len(y_train), len(y_test)
    except FlatlabError as error:
        fault = str(error)
    files = [{"path": str(source.path), "bytes": source.path.stat().st_size, "fault": fault}]
    faults = [fault] if fault else []
    return Checked(source.image_set.name, source.title, source.place, *counts, files, faults)
