"""Arms trained with the hyper-parameters of the paper's Table 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...data import Dataset
from ...losses import Loss
from ...models import Architecture
from ...theory.table2 import TABLE2, Row
from ...training.schedule import Phase
from ..arms import Arm, trained_on
from ..sizes import Sizes

FULL_BATCH = 100  # the paper's n, which Table 2 gives as the batch size of gradient descent
ORDINALS = ("", "_second", "_third")  # of an arm's phases, in the names of settings


def rows(panel: str) -> list[Row]:
    """Return the rows of Table 2 for a panel such as "4b"."""
    return [entry for entry in TABLE2 if entry.figure == panel]


def row(panel: str, position: int = 0) -> Row:
    """Return a row of Table 2: the panel's first, second or third.

    >>> row("4b", 1).epochs
    400000
    """
    return rows(panel)[position]


def phase_of(row: Row, **changes: Any) -> Phase:
    """Return a row of Table 2 as a phase of a schedule, with changes."""
    made = Phase(
        "sam" if row.rho else "sgd",
        lr=row.lr,
        epochs=row.epochs,
        rho=row.rho,
        batch_size=row.batch_size,
        weight_decay=row.weight_decay,
    )
    return made.changed(**changes)


def schedule(
    panel: str, epochs: Sequence[int], last: dict[str, Any] | None = None, **changes: Any
) -> tuple[Phase, ...]:
    """Return a panel's rows with other epochs; 0 leaves a row out.

    `changes` apply to every phase, `last` to the phase of the panel's last row.
    """
    found = rows(panel)
    phases = []
    for entry, length in zip(found, epochs, strict=False):
        made = {**changes, "epochs": length}
        if entry.batch_size == FULL_BATCH:
            made["batch_size"] = None
        if last and entry is found[-1]:
            made |= last
        if length:
            phases.append(phase_of(entry, **made))
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
    **changes: Any,
) -> Arm:
    """Return the arm of one panel of a figure.

    The settings hold the epochs of its phases as key_epochs, key_epochs_second and
    key_epochs_third. `last` and `changes` go to `schedule`.
    """
    epochs = [getattr(s, f"{key}_epochs{ordinal}", 0) for ordinal in ORDINALS]
    config = trained_on(data, s, arch, schedule(panel, epochs, last, **changes), loss=loss)
    return Arm(key, label, config, floor, reference=reference, panel=panel, ours=ours)


def baseline(
    s: Sizes,
    number: int,
    arch: Architecture,
    floor: Callable[[Dataset], float] | None = None,
    reference: str = "floor",
    descent: str = "GD + weight decay",
    loss: Loss | None = None,
) -> list[Arm]:
    """Return the two panels of a figure: (a) descent with weight decay, (b) 1-SAM."""
    return [
        trained(s, key, f"{number}{letter}", label, arch, floor, reference, loss=loss)
        for key, letter, label in (("gd", "a", descent), ("sam", "b", "1-SAM"))
    ]
