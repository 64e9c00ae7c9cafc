"""The commands `data get`, `data check` and `data import`: image sets on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ..errors import UserError, unknown
from .app import DONE, USER_MISTAKE, Json, app, complain, emit

if TYPE_CHECKING:
    from ..data.checking import Checked
    from ..data.sets import ImageSet

data = typer.Typer(help="Download, check and convert CIFAR-10 and Fashion-MNIST.")
app.add_typer(data, name="data", no_args_is_help=True)

Name = Annotated[str, Argument(metavar="NAME", help="cifar10 or fashion_mnist")]
To = Annotated[
    Path | None, Option(help="Data folder; by default FLATLAB_DATA or the user's cache.")
]


@data.command()
def get(
    name: Name,
    to: To = None,
    mirror: Annotated[
        str | None,
        Option("--from", envvar="FLATLAB_MIRROR", help="Address of a folder with the archives."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Download an image set; a download that was interrupted goes on where it stopped."""
    from ..data.checking import archives_to_get, whole_in
    from ..data.places import home
    from ..files.fetching import fetch
    from ..outside.progress import DownloadProgress

    image_set, folder = _set_named(name), to or home()
    if whole_in(image_set, folder) is None:
        archives = archives_to_get(image_set, folder)
        target, stage = folder / image_set.folder, folder / image_set.stage
        with DownloadProgress(not as_json) as progress:
            fetch(mirror or image_set.url, archives, stage, target, progress.update)
    _tell([image_set], folder, as_json)
    return DONE


@data.command()
def check(
    names: Annotated[
        list[str] | None, Argument(metavar="[NAME]...", help="By default all that are there.")
    ] = None,
    directory: Annotated[
        Path | None,
        Option("--data", "--data-dir", help="Data folder; by default where data are looked for."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Say which image sets are there, in which form, and whether they are whole."""
    from ..data import checking
    from ..data.places import folders
    from ..data.sets import SETS
    from ..data.sources import missing, partly_downloaded

    wanted = [_set_named(name).name for name in names or SETS]
    where = folders(directory)
    found = checking.check(wanted, where)
    faults = [fault for one in found for fault in one.faults]
    absent = [name for name in wanted if name not in {one.name for one in found}]
    notes = [str(missing(name, where)) for name in absent]
    # A set that nobody asked for and nobody began to download need not be there.
    if names or not found or any(partly_downloaded(name, where) for name in absent):
        faults, notes = faults + notes, []
    if as_json:
        sets = [one.to_dict() for one in found]
        emit({"folders": where, "sets": sets, "missing": absent, "whole": not faults})
    else:
        from .console import print_line, print_table

        if found:
            print_table([_row(one) for one in found], "image sets")
        for note in notes:
            print_line(note)
    for fault in faults:
        complain(fault, USER_MISTAKE)
    return USER_MISTAKE if faults else DONE


@data.command("import")
def import_(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="A folder with a whole image set.")],
    to: To = None,
    as_json: Json = False,
) -> int:
    """Convert an image set of any form that flatlab reads into its published files."""
    from ..data.checking import whole_in
    from ..data.places import folders, home
    from ..data.sets import SETS
    from ..data.sources import Published, find
    from ..files.durable import ensure_directory, write_atomically

    where = folders(folder)
    sources = [
        source
        for image_set in SETS.values()
        for source in find(image_set, where)[:1]
        if isinstance(source, Published)
    ]
    if not sources:
        raise UserError(
            f"{folder} holds no image set in a form that can be converted: CIFAR-10 as binary "
            "files, pickles or PNG strips, or Fashion-MNIST as idx files"
        )
    into = to or home()
    for source in sources:
        target = into / source.image_set.folder
        if whole_in(source.image_set, into) is None:
            contents = {file.name: source.content(file) for file in source.image_set.files}
            ensure_directory(target)
            for name, content in contents.items():
                write_atomically(target / name, content)
    _tell([source.image_set for source in sources], into, as_json)
    return DONE


def _set_named(name: str) -> ImageSet:
    from ..data.sets import SETS

    if name not in SETS:
        raise unknown("image set", name, SETS)
    return SETS[name]


def _row(one: Checked) -> dict[str, Any]:
    counts = {"training images": one.train, "test images": one.test}
    state = "whole" if one.whole else f"{len(one.faults)} faults"
    return {"set": one.name, "form": one.form, "state": state, **counts, "folder": str(one.place)}


def _tell(image_sets: Sequence[ImageSet], folder: Path, as_json: bool) -> None:
    """Say what is whole now, and how other commands find it."""
    from ..data.checking import whole_in
    from ..data.places import VARIABLE, searched

    found = [one for image_set in image_sets if (one := whole_in(image_set, folder))]
    if len(found) < len(image_sets):
        raise UserError(f"the files in {folder} were changed by another process: try again")
    if as_json:
        emit({"sets": [one.to_dict() for one in found]})
        return
    from .console import print_line, print_table

    print_table([_row(one) for one in found], "image sets")
    if folder.absolute() not in {place.absolute() for place in searched()}:
        path = shlex.quote(str(folder))
        print_line(f"to use it: --data-dir {path}, or {VARIABLE}={path}")
