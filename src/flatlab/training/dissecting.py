"""The one call that looks into a run: from a run, or its directory, to its `Anatomy`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..anatomy import Anatomy, portray
from ..errors import UserError
from ..models import is_chain
from .run import Run, examine


def dissect(run: Run | str | Path) -> Anatomy:
    """Return what the final network of a run looks like on its training set.

    Args:
        run: A `Run`, or the directory of a stored one.
    """
    if not isinstance(run, Run | str | Path):
        raise UserError(f"run must be a Run or its directory, got {type(run).__name__}")
    made = run if isinstance(run, Run) else examine(run)
    try:
        data = made.dataset()
    except UserError as error:
        raise UserError(
            f"the data set of {made.path or 'this run'} cannot be made again: {error}"
        ) from None
    arch = made.config.arch
    if not is_chain(arch):
        raise UserError(f"only two_layer and deep networks have an anatomy, got {arch.describe()}")
    expected = arch.shapes(data.d)
    given = {name: np.shape(value) for name, value in made.params.items()}
    if given != expected:
        raise UserError(
            f"the run's parameters do not fit its data set {data.name!r}, on which they would "
            f"have the shapes {expected}: got {given}"
        )
    return portray(arch, dict(made.params), data, made.columns)
