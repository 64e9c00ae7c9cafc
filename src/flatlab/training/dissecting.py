"""The one call that looks into a run: from a run, or its directory, to its `Anatomy`."""

from __future__ import annotations

from pathlib import Path

from ..anatomy import Anatomy, portray
from ..errors import UserError
from ..models.contract import shapes_of
from .run import Run, examine


def dissect(run: Run | str | Path) -> Anatomy:
    """Return what the final network of a run, or of a run's directory, looks like on its data."""
    if not isinstance(run, Run | str | Path):
        raise UserError(f"run must be a Run or its directory, got {type(run).__name__}")
    made = run if isinstance(run, Run) else examine(run)
    try:
        data = made.dataset()
    except UserError as error:
        raise UserError(
            f"the data set of {made.path or 'this run'} cannot be made again: {error}"
        ) from None
    arch = made.config.arch.chain
    if arch is None:
        given_arch = made.config.arch.describe()
        raise UserError(f"only two_layer and deep networks have an anatomy, got {given_arch}")
    params, expected = dict(made.params), arch.shapes(data.d)
    if (given := shapes_of(params)) != expected:
        raise UserError(
            f"the run's parameters do not fit its data set {data.name!r}, on which they would "
            f"have the shapes {expected}: got {given}"
        )
    return portray(arch, params, data, made.columns)
