"""The command `anatomy`: look inside a solution."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from .app import DONE, Json, app, complain, emit, folder


@app.command()
def anatomy(
    path: Annotated[Path, Argument(metavar="DIR", help="A run directory.")],
    out: Annotated[
        Path | None,
        Option(help="Folder for the pictures; by default the run directory.", parser=folder),
    ] = None,
    most: Annotated[int, Option(min=1, max=40, help="Number of neurons in the table.")] = 10,
    as_json: Json = False,
) -> int:
    """Look inside a solution: does it memorise, or has it found the features?"""
    from ..anatomy.pictures import pictures
    from ..report import save
    from ..training.dissecting import dissect
    from ..training.run import examine

    run = examine(path)
    found = dissect(run)
    paths = save(pictures(found, path.resolve().name), out or path)
    neurons = found.neurons(most)
    for note in run.notes:
        complain(f"{path}: {note}", DONE)
    if as_json:
        names = ("memorisation", "groups", "layers", "features", "chance")
        facts = {name: getattr(found, name) for name in names}
        kept = {"path": path, "status": run.status, "notes": run.notes}
        emit({**kept, **facts, "neurons": neurons, "pictures": paths})
        return DONE
    from ..outside.tables import number
    from .console import print_line, print_table

    print_table(neurons, f"the {len(neurons)} largest neurons of {found.gallery.total}")
    print_line(
        f"memorisation {number(found.memorisation)}: as with {number(found.groups)} groups of "
        f"training points that share no neuron; {found.data.n} would be one for each point"
    )
    if len(found.layers) > 1:
        print_line(f"by hidden layer: {', '.join(map(number, found.layers))}")
    if found.features is not None:
        print_line(
            f"features {number(found.features)}: share of the first layer on relevant coordinates; "
            f"{number(found.chance)} would be chance"
        )
    for picture in paths:
        print_line(f"picture: {picture}")
    return DONE
