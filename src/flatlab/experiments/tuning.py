"""Hyper-parameters that a request may change in every phase that has them.

They are settings of every experiment that trains: `--set rho=0.1` replaces the radius in each phase
with an ascent, `lr` each learning rate, `noise` each label noise, `batch_size` each batch that is
not the whole training set. An arm whose point is such a value keeps its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ..errors import UserError
from ..training.schedule import Phase
from .contract import Computation, Planned

TUNED = ("lr", "rho", "noise", "batch_size")


def has(phase: Phase, name: str) -> bool:
    """Return whether a phase has a hyper-parameter to change.

    >>> [has(Phase("sam", lr=0.1, rho=0.5, epochs=1), name) for name in TUNED]
    [True, True, False, False]
    """
    return bool(getattr(phase, name))


def tuned(
    schedule: Sequence[Phase], s: Any, n: int, own: Collection[str] = ()
) -> tuple[Phase, ...]:
    """Return a schedule for n examples with the settings' hyper-parameters, but the arm's own."""
    given = {name: getattr(s, name, None) for name in TUNED if name not in own}
    wanted = {name: value for name, value in given.items() if value is not None}
    if wanted.get("batch_size", 0) > n:
        raise UserError(f"batch_size must be <= n = {n}, got {wanted['batch_size']}")
    return tuple(
        phase.changed(**{name: value for name, value in wanted.items() if has(phase, name)})
        for phase in schedule
    )


def tunable(plan: Iterable[Planned | Computation]) -> set[str]:
    """Return the hyper-parameters that some phase of a plan has."""
    phases = [phase for p in plan if isinstance(p, Planned) for phase in p.config.schedule]
    return {name for name in TUNED if any(has(phase, name) for phase in phases)}
