"""What every figure's analysis needs: means over seeds, curves, and judging an interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..plots import Curve
from ..training.run import Run
from .contract import Interval, Verdict

Rule = Callable[[Interval], tuple[bool | None, str]]


def judge(
    claim: str,
    statement: str,
    paper: str,
    values: Sequence[float],
    rule: Rule,
    *,
    decisive: bool,
    within: tuple[float, float] = (-np.inf, np.inf),
) -> Verdict:
    """Return the verdict on one quantity, one value a seed; one seed is judged by its value.

    Args:
        claim: The claim's id.
        statement: The claim in one sentence.
        paper: What the paper says.
        values: The measured values.
        rule: Interval → (holds, reason); asked only when there is enough to decide.
        decisive: Whether the sizes are large enough to decide the claim at all.
        within: What the quantity can be; the interval is clipped to it.
    """
    interval = Interval.of(list(values), *within)
    measured = float(np.mean(values)) if len(values) else None
    low, high = (interval.low, interval.high) if interval else (None, None)
    holds: bool | None = None
    if measured is None:
        reason = "no run is there to judge by"
    elif not decisive:
        reason = "a run diverged, or the sizes are below those of the preset lab"
    elif interval is None:
        holds, reason = rule(Interval(measured, measured, measured))
        reason = f"one seed: {reason.replace('interval', 'value')}"
    else:
        holds, reason = rule(interval)
    return Verdict(claim, statement, paper, measured, low, high, holds, reason)


def finals(runs: Sequence[Run], column: str) -> list[float]:
    """Return a column's last value in each run."""
    return [run.final[column] for run in runs]


def curves(
    groups: Mapping[str, Sequence[Run]], labels: Mapping[str, str], column: str
) -> tuple[Curve, ...]:
    """Return one series a group of runs that share a log grid; groups without runs are left out.

    A run that diverged has fewer rows: curves are drawn over what all seeds of a group share.
    """
    made = []
    for role, runs in groups.items():
        if runs:
            rows = min(len(run.columns["epoch"]) for run in runs)
            y = np.stack([run.columns[column][:rows] for run in runs])
            made.append(Curve(labels[role], role, runs[0].columns["epoch"][:rows].astype(float), y))
    return tuple(made)
