"""A figure's table and picture: training loss, generalisation and sharpness of its parts."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from ....plots import Curve, Curves, Plot, Reference
from ....training.run import Run
from ...analysis import curves
from ...contract import Interval
from .evidence import Evidence

Values = dict[str, float]
NAMES = {"test_error": "test error", "test_loss": "test loss"}
CAPTION = "Lines: mean over seeds. Bands: smallest to largest."


def table(found: Evidence) -> list[dict[str, Any]]:
    """Return means over seeds, a row for the end of each phase, with the interval of the score."""
    rows = []
    for part in found.figure.parts:
        runs, epoch = list(found.runs[part.key].values()), 0
        for phase in part.schedule(found.settings):
            epoch += phase.epochs
            ends = [values for run in runs if (values := _row_at(run, epoch))]
            rows.append(
                {
                    "panel": part.panel,
                    "part": part.label,
                    "rho": phase.rho,
                    "epoch": epoch,
                    **_loss(found, ends),
                    "trace": _mean(ends, "trace"),
                    "trace_ggn": _mean(ends, "trace_ggn"),
                    "floor": reference(found, part.key),
                    **_score(ends, found.figure.score),
                    "seeds": len(ends),
                }
            )
    return rows


def picture(found: Evidence) -> Plot:
    """Return the figure's picture."""
    groups = {key: list(runs.values()) for key, runs in found.runs.items()}
    labels = {part.key: part.label for part in found.figure.parts}
    least, score = found.figure.loss.least, found.figure.score
    loss = tuple(
        dataclasses.replace(series, y=series.y - least)
        for series in curves(groups, labels, "train_loss")
    )
    excess = "training loss" if least == 0 else "training loss − its minimum"
    is_error = score == "test_error"
    second = _scores(found, labels) if found.figure.scores else ()
    return Plot(
        f"fig{found.figure.number}",
        found.figure.title,
        (
            (
                Curves(excess, "loss", loss, yscale="log"),
                Curves(
                    NAMES[score],
                    NAMES[score],
                    curves(groups, labels, score),
                    (Reference("chance", 0.5, above=True),) if is_error else (),
                    yscale="linear" if is_error else "log",
                    ylim=(-0.02, 0.6) if is_error else None,
                ),
                Curves(
                    "sharpness",
                    "Gauss–Newton trace",
                    curves(groups, labels, "trace_ggn"),
                    _lines(found),
                    yscale="log",
                ),
            ),
            *((second,) if second else ()),
        ),
        caption="\n".join([CAPTION, *_phases(found)]),
    )


def _scores(found: Evidence, labels: dict[str, str]) -> tuple[Curves, ...]:
    """Return the panels of the two scores; runs made before they were logged are left out."""

    def logged(column: str) -> tuple[Curve, ...]:
        groups = {
            key: [run for run in runs.values() if column in run.columns]
            for key, runs in found.runs.items()
        }
        return curves(groups, labels, column)

    s = found.settings
    data = found.figure.data_of(0, s)
    chance = len(data.relevant) / data.d
    panels = (
        Curves(
            "memorisation score",
            "memorisation score",
            logged("memorisation"),
            yscale="log",
            ylim=(0.8 / s.n, 1.2),  # up to 1, so that a small score looks small
        ),
        Curves(
            "feature score",
            "feature score",
            logged("features"),
            (Reference("chance", chance, above=True),),
            ylim=(-0.02, 1.05),
        ),
    )
    return tuple(panel for panel in panels if panel.curves)


def reference(found: Evidence, key: str) -> float | None:
    """Return the trace that a part is compared with, the mean over the seeds' data sets."""
    floors = list(found.floors[key].values())
    return float(np.mean(floors)) if floors else None


def _row_at(run: Run, epoch: int) -> Values | None:
    """Return the history's row of an epoch, or None if the run did not get there."""
    (found,) = np.nonzero(run.columns["epoch"] == epoch)
    return (
        {name: float(column[found[0]]) for name, column in run.columns.items()}
        if len(found)
        else None
    )


def _mean(rows: list[Values], column: str) -> float | None:
    return float(np.mean([row[column] for row in rows])) if rows else None


def _loss(found: Evidence, rows: list[Values]) -> dict[str, float | None]:
    value, least = _mean(rows, "train_loss"), found.figure.loss.least
    if least == 0:
        return {"train_loss": value}
    return {"excess_loss": None if value is None else value - least}


def _score(rows: list[Values], column: str) -> dict[str, float | None]:
    ceiling = 1.0 if column == "test_error" else np.inf
    interval = Interval.of([row[column] for row in rows], 0.0, ceiling)
    return {
        column: _mean(rows, column),
        f"{column}_low": interval.low if interval else None,
        f"{column}_high": interval.high if interval else None,
    }


def _lines(found: Evidence) -> tuple[Reference, ...]:
    """Return the parts' references, each once; the lowest is labelled, below it, for all."""
    values: dict[str, float] = {}
    for part in found.figure.parts:
        value = reference(found, part.key)
        if value is not None:
            values[f"{part.reference}: {value:.2f}"] = value
    label = "; ".join(sorted(values, key=lambda name: values[name]))
    return tuple(
        Reference("" if k else label, value) for k, value in enumerate(sorted(values.values()))
    )


def _phases(found: Evidence) -> list[str]:
    """Say where a part's hyper-parameters change."""
    said = []
    for part in found.figure.parts:
        epoch, changes = 0, []
        schedule = part.schedule(found.settings)
        for before, after in itertools.pairwise(schedule):
            epoch += before.epochs
            changes.append(f"ρ = {after.rho:g}, learning rate {after.lr:g} from epoch {epoch:,}")
        if changes:
            said.append(f"{part.label}: {'; '.join(changes)}.")
    return said
