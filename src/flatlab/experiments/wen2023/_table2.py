"""Arms trained with the hyper-parameters of the paper's Table 2."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ...data import Dataset
from ...losses import Loss
from ...models import Architecture
from ...theory.table2 import TABLE2, Row
from ...training.schedule import Phase
from ..arms import Arm, trained_on
from ..sizes import ORDINALS, Sizes

FULL_BATCH = 100  # the paper's n, which Table 2 gives as the batch size of gradient descent


def rows(panel: str) -> list[Row]:
    """Return the rows of Table 2 for a panel such as "4b"."""
    return [entry for entry in TABLE2 if entry.figure == panel]


def row(panel: str, position: int = 0) -> Row:
    """Return a row of Table 2: the panel's first, second or third.

    >>> row("4b", 1).epochs
    400000
    """
    return rows(panel)[position]


def schedule(
    panel: str, epochs: Sequence[int], last: dict[str, Any] | None = None, **changes: Any
) -> tuple[Phase, ...]:
    """Return a panel's rows with other epochs; 0 leaves a row out.

    `changes` apply to every phase, `last` to the phase of the panel's last row.
    """
    found = rows(panel)
    phases = []
    for entry, length in zip(found, epochs, strict=False):
        if length:
            phase = Phase(
                "sam" if entry.rho else "sgd",
                lr=entry.lr,
                epochs=length,
                rho=entry.rho,
                batch_size=None if entry.batch_size == FULL_BATCH else entry.batch_size,
                weight_decay=entry.weight_decay,
            )
            own = last or {} if entry is found[-1] else {}
            phases.append(phase.changed(**{**changes, **own}))
    return tuple(phases)


def trained(
    s: Sizes,
    key: str,
    panel: str,
    label: str,
    arch: Architecture,
    floor: Callable[[Dataset], float] | None = None,
    reference: str = "floor",
    *,
    data: str = "xor",
    loss: Loss | None = None,
    ours: bool = False,
    last: dict[str, Any] | None = None,
    own: Collection[str] = (),
    **changes: Any,
) -> Arm:
    """Return the arm of one panel of a figure.

    The settings hold the epochs of its phases as key_epochs, key_epochs_second and
    key_epochs_third. `last` and `changes` go to `schedule`, `own` to `trained_on`. A
    batch larger than the training set is the whole set.
    """
    epochs = [getattr(s, f"{key}_epochs{ordinal}", 0) for ordinal in ORDINALS]
    phases = [
        phase.changed(batch_size=None) if (phase.batch_size or 0) > s.n else phase
        for phase in schedule(panel, epochs, last, **changes)
    ]
    config = trained_on(data, s, arch, phases, loss=loss, own=own)
    return Arm(key, label, config, floor, reference=reference, panel=panel, ours=ours)
