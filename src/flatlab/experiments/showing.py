"""Tables and pictures of a comparison: final values, and columns of the history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..plots import Curve, Curves, Dot, Dots, Limits, Plot, Reference
from .compared import Compared
from .contract import FRACTION, Interval

DOTS = "Large dots: mean over seeds with its 95 % interval. Small dots: seeds."
CURVES = "Lines: mean over seeds. Bands: smallest to largest."
CHANCE = Reference("chance", 0.5, above=True)
NAMES = {
    "train_loss": "training loss",
    "test_error": "test error",
    "test_loss": "test loss",
    "trace_ggn": "Gauss–Newton trace",
}


def tables(found: Compared) -> dict[str, list[dict[str, Any]]]:
    """Return a row for each arm: means over seeds, with the interval of the test error."""
    rows = []
    for key, arm in found.arms.items():
        runs = found.runs[key]
        ratios = found.over_floor(key) if found.floors[key] else []
        has_error = all("test_error" in run.columns for run in runs.values())
        told = "test_error" if has_error else "test_loss"
        rows.append(
            {
                "arm": arm.label,
                **{
                    column: found.mean(key, column) if runs else None
                    for column in ("train_loss", "trace", "trace_ggn")
                },
                "trace/floor": sum(ratios) / len(ratios) if ratios else None,
                **score(told, found.final(key, told)),
                "seeds": len(runs),
            }
        )
    return {found.comparison.name: rows}


def score(column: str, values: Sequence[float]) -> dict[str, float | None]:
    """Return the mean of a score over seeds, and the ends of its interval."""
    interval = Interval.of(list(values), 0.0, 1.0 if column == "test_error" else np.inf)
    return {
        column: float(np.mean(values)) if values else None,
        f"{column}_low": interval.low if interval else None,
        f"{column}_high": interval.high if interval else None,
    }


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return the picture of final values."""
    return (final_values(found),)


def final_values(found: Compared) -> Plot:
    """Return the picture of final values: test error, and trace over its floor if known."""
    floors = all(found.floors.values())
    trace = found.over_floor if floors else lambda key: found.final(key, "trace_ggn")
    row = error_and_trace(
        {
            key: (arm.label, arm.role or key, found.final(key, "test_error"), trace(key))
            for key, arm in found.arms.items()
        },
        (Reference("chance", 0.5),),
        floors,
    )
    return Plot(found.comparison.name, found.comparison.title, (row,), DOTS)


def error_and_trace(
    rows: Mapping[str, tuple[str, str, Sequence[float], Sequence[float]]],
    references: tuple[Reference, ...],
    over_floor: bool = False,
) -> tuple[Dots, Dots]:
    """Return the panels of test error and trace: key → label, role, errors, traces."""
    return (
        Dots(
            "generalisation",
            "test error",
            tuple(Dot(label, role, tuple(errors)) for label, role, errors, _ in rows.values()),
            references,
            within=FRACTION,
        ),
        Dots(
            "sharpness",
            "Gauss–Newton trace over its floor" if over_floor else "Gauss–Newton trace",
            tuple(Dot(label, role, tuple(traces)) for label, role, _, traces in rows.values()),
            (Reference("floor", 1.0),) if over_floor else (),
            xscale="log",
            within=(0.0, float("inf")),
        ),
    )


THROUGH = {"train_loss": "training loss", "test_error": "test error", "trace_ggn": "trace"}


def histories(
    name: str,
    title: str,
    found: Compared,
    keys: Iterable[str],
    columns: Mapping[str, str] = THROUGH,
) -> Plot:
    """Return a picture with a panel for each column through training; `columns`: column → title."""
    keys = list(keys)
    panels = tuple(
        through_training(found, keys, column, words, words) for column, words in columns.items()
    )
    return Plot(name, title, (panels,), CURVES)


def through_training(
    found: Compared,
    keys: Iterable[str],
    column: str,
    title: str,
    ylabel: str,
    references: tuple[Reference, ...] = (),
) -> Curves:
    """Return the panel of one column through training, with a curve for each arm.

    Test error has a linear axis with chance marked, all other columns a logarithmic one.
    """
    drawn = curves(found, keys, column)
    if column == "test_error":
        return Curves(title, ylabel, drawn, (CHANCE, *references), ylim=(-0.02, 0.6))
    return Curves(title, ylabel, drawn, references, yscale="log")


def curves(found: Compared, keys: Iterable[str], column: str) -> tuple[Curve, ...]:
    """Return a curve for each arm; runs without the column and arms without runs are left out.

    A run that diverged has fewer rows, so a curve ends at the last row that all its seeds have.
    """
    keys = list(keys)
    roles = [found.arms[key].role or key for key in keys]
    if len(set(roles)) < len(keys):  # here each arm has its own colour
        roles = keys
    made = []
    for key, role in zip(keys, roles, strict=True):
        runs = [run for run in found.runs[key].values() if column in run.columns]
        if runs:
            rows = min(len(run.columns["epoch"]) for run in runs)
            y = np.stack([run.columns[column][:rows] for run in runs])
            x = runs[0].columns["epoch"][:rows].astype(float)
            made.append(Curve(found.arms[key].label, role, x, y))
    return tuple(made)


def errors_against(
    x: Sequence[float],
    lines: Mapping[str, Sequence[str]],
    found: Compared,
    title: str,
    xlabel: str,
    *others: Curve,
) -> Curves:
    """Return the panel of final test errors against x, a setting, beside other curves.

    `lines` is label → keys of the arms in the order of x; only seeds that all arms have are drawn.
    """
    made = []
    for label, keys in lines.items():
        if values := list(found.along(keys, "test_error").values()):
            made.append(Curve(label, label, np.array(x, float), np.array(values)))
    return Curves(
        title,
        "test error",
        (*made, *others),
        (CHANCE,),
        ylim=(-0.02, 0.6),
        xlabel=xlabel,
        xscale="linear",
    )


def said(values: Sequence[float], within: Limits, places: int = 3) -> str:
    """Write the mean over seeds and its interval, which is clipped to the range of the values.

    >>> said([1.0, 2.0, 3.0], (0.0, 5.0), 1), said([0.25], (0.0, 1.0))
    ('2.0 [0.0, 4.5]', '0.250')
    """
    interval, mean = Interval.of(list(values), *within), f"{np.mean(values):.{places}f}"
    if interval is None:
        return mean
    return f"{mean} [{interval.low:.{places}f}, {interval.high:.{places}f}]"


def said_error(found: Compared, key: str) -> str:
    """Write the mean test error of an arm and its interval."""
    return said(found.final(key, "test_error"), FRACTION)
