"""A figure of the paper: its arms, the table of the ends of its phases, and its picture."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...data import Dataset
from ...losses import Loss
from ...models import Architecture
from ...plots import Curves, Plot, Reference
from ...specs import spec
from ...training.run import Run
from ..arms import Arm, Comparison, Tables, training_set
from ..compared import Compared
from ..showing import CURVES, NAMES, curves, score, through_training
from ..sizes import Count, Epochs, Sizes, first_look, lengths
from ._table2 import rows, trained

# Settings of a figure's preset `quick`, from its class and the epochs.
small_figure = functools.partial(first_look, width=100, d=10, n=60, n_test=1000)


def figure(
    number: int,
    *,
    tables: Callable[[Compared], Tables] = lambda found: {},
    generalisation: str = "test_error",
    scores: bool = False,
    **given: Any,
) -> Comparison:
    """Return a figure as a comparison, with further tables and the other fields of `Comparison`.

    `generalisation` is the column that measures it: "test_error" or "test_loss". With `scores` the
    picture has a second row with the memorisation and the feature score.
    """
    name = f"fig{number}"
    return Comparison(
        id=f"wen2023/{name}",
        source="Wen, Li & Ma 2023",
        figure=f"Figure {number}",
        tables=lambda found: {name: phase_ends(found, generalisation), **tables(found)},
        plots=lambda found: (picture(found, generalisation, scores),),
        **given,
    )


def settings(**panels: str) -> Any:
    """Return a class of settings: sizes, and the epochs of every row of Table 2 for these panels.

    With sam="4b" they are sam_epochs and, since 4b has two rows, sam_epochs_second, which may be 0.
    """
    epochs = lengths(**{key: tuple(row.epochs for row in rows(p)) for key, p in panels.items()})
    types = {name: Count if name.endswith("epochs") else Epochs for name in epochs}
    return spec(type("Settings", (Sizes,), {"__annotations__": types, **epochs}))


def two_panels(
    number: int,
    arch: Callable[[Any], Architecture],
    floor: Callable[[Dataset], float] | None = None,
    reference: str = "floor",
    *,
    quick: Mapping[str, Any],
    lab: Mapping[str, Any],
    descent: str = "SGD + weight decay",
    loss: Loss | None = None,
    **given: Any,
) -> Comparison:
    """Return a figure with two panels of one network: (a) descent with weight decay, (b) 1-SAM.

    `reference` says what the floor is, in a few words. `quick` and `lab` are the settings of these
    presets that differ from `small_figure`'s and from the paper's. `given` goes to `figure`.
    """
    chosen = settings(gd=f"{number}a", sam=f"{number}b")
    presets = {"quick": small_figure(chosen, **quick), "lab": chosen(**lab), "paper": chosen()}

    def arms(s: Any) -> list[Arm]:
        return [
            trained(s, key, f"{number}{letter}", label, arch(s), floor, reference, loss=loss)
            for key, letter, label in (("gd", "a", descent), ("sam", "b", "1-SAM"))
        ]

    return figure(number, presets=presets, arms=arms, **given)


def panels_of(found: Compared) -> list[Arm]:
    """Return the arms of a figure, which are its panels; no arm is derived."""
    return [arm for arm in found.arms.values() if isinstance(arm, Arm)]


def least_loss(found: Compared) -> float:
    """Return the smallest possible value of the figure's training loss."""
    return panels_of(found)[0].config(0).loss.least


def phase_ends(found: Compared, generalisation: str) -> list[dict[str, Any]]:
    """Return a row for the end of each phase: means over seeds, with the interval of the score."""
    least = least_loss(found)
    made = []
    for arm in panels_of(found):
        epoch = 0
        for phase in arm.config(0).schedule:
            epoch += phase.epochs
            ends = [values for run in found.runs[arm.key].values() if (values := _at(run, epoch))]
            loss = _mean(ends, "train_loss")
            if loss is not None:
                loss -= least
            made.append(
                {
                    "panel": arm.panel,
                    "part": arm.label,
                    "rho": phase.rho,
                    "epoch": epoch,
                    "excess_loss" if least else "train_loss": loss,
                    "trace": _mean(ends, "trace"),
                    "trace_ggn": _mean(ends, "trace_ggn"),
                    "floor": found.floor(arm.key),
                    **score(generalisation, [values[generalisation] for values in ends]),
                    "seeds": len(ends),
                }
            )
    return made


def _at(run: Run, epoch: int) -> dict[str, float]:
    """Return the history's row of an epoch; empty if the run did not reach it."""
    rows = np.flatnonzero(run.columns["epoch"] == epoch)[:1]
    return {name: float(column[k]) for k in rows for name, column in run.columns.items()}


def _mean(rows: Sequence[Mapping[str, float]], column: str) -> float | None:
    return float(np.mean([row[column] for row in rows])) if rows else None


def picture(found: Compared, generalisation: str = "test_error", scores: bool = False) -> Plot:
    """Return the figure's picture: training loss, generalisation and sharpness of its arms."""
    least, words = least_loss(found), NAMES[generalisation]
    loss = tuple(
        dataclasses.replace(c, y=c.y - least) for c in curves(found, found.arms, "train_loss")
    )
    first = (
        Curves(f"training loss{' − its minimum' if least else ''}", "loss", loss, yscale="log"),
        through_training(found, found.arms, generalisation, words, words),
        through_training(
            found, found.arms, "trace_ggn", "sharpness", NAMES["trace_ggn"], references(found)
        ),
    )
    second = _scores(found) if scores else ()
    panels = (first, second) if second else (first,)
    caption = "\n".join([CURVES, *_phases(found)])
    return Plot(found.comparison.name, found.comparison.title, panels, caption)


def _scores(found: Compared) -> tuple[Curves, ...]:
    """Return the panels of the two scores; runs that did not log them are left out."""
    data = training_set(panels_of(found)[0].config(0))
    chance = Reference("chance", len(data.relevant) / data.d, above=True)
    memorisation, features = (curves(found, found.arms, c) for c in ("memorisation", "features"))
    # The axis goes up to 1, so a small score looks small.
    limits = (0.8 / found.settings.n, 1.2)
    words = "memorisation score", "feature score"
    panels = (
        Curves(words[0], words[0], memorisation, yscale="log", ylim=limits),
        Curves(words[1], words[1], features, (chance,), ylim=(-0.02, 1.05)),
    )
    return tuple(panel for panel in panels if panel.curves)


def references(found: Compared) -> tuple[Reference, ...]:
    """Return the arms' floors, each once; one label below the lowest names them all."""
    values = {
        f"{arm.reference}: {value:.2f}": value
        for arm in panels_of(found)
        if (value := found.floor(arm.key)) is not None
    }
    label = "; ".join(sorted(values, key=lambda name: values[name]))
    return tuple(
        Reference("" if k else label, value) for k, value in enumerate(sorted(values.values()))
    )


def _phases(found: Compared) -> list[str]:
    """Say at which epochs an arm's hyper-parameters change."""
    said = []
    for arm in panels_of(found):
        epoch, changes = 0, []
        for before, after in itertools.pairwise(arm.config(0).schedule):
            epoch += before.epochs
            changes.append(f"ρ = {after.rho:g}, learning rate {after.lr:g} from epoch {epoch:,}")
        if changes:
            said.append(f"{arm.label}: {'; '.join(changes)}.")
    return said
