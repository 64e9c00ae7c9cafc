"""The picture of a run, as data: its history by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..plots import Curve, Curves, Plot

if TYPE_CHECKING:
    from .run import Run

LAYERS = 6  # curves of one panel
MOST = 24  # values by layer; a longer array is a density or a diagonal, and left out
PANELS = 3  # panels of one row
LOSS, ERROR = ("train_loss", "test_loss"), ("train_error", "test_error")
OTHERS = ("epoch", "step", "trace_ggn")


def picture(run: Run) -> Plot:
    """Return a plot of losses, errors, the trace and the tracked measures."""
    panels = [_panel(run, "loss", LOSS, "log"), _panel(run, "error", ERROR)]
    groups: dict[str, list[str]] = {}
    for name in run.columns:
        if name not in (*LOSS, *ERROR, *OTHERS) and not name.endswith("_stderr"):
            groups.setdefault(name.partition(".")[0], []).append(name)
    few = {measure: names for measure, names in groups.items() if len(names) <= MOST}
    panels += [_panel(run, measure, tuple(names)) for measure, names in few.items()]
    shown = [panel for panel in panels if panel.curves]
    rows = tuple(tuple(shown[k : k + PANELS]) for k in range(0, len(shown), PANELS))
    config = run.config
    title = f"{config.arch.describe()} on {config.data.get('name', 'data')}"
    return Plot("run", title, rows, f"{run.status}, seed {config.seed}")


def _panel(run: Run, title: str, names: tuple[str, ...], scale: str = "linear") -> Curves:
    there = [name for name in names if name in run.columns]
    left = f", the first {LAYERS} of {len(there)}" if len(there) > LAYERS else ""
    curves = tuple(_curve(run, name, len(there) > 1) for name in there[:LAYERS])
    log = scale == "log" and any((curve.y > 0).any() for curve in curves)
    return Curves(f"{title}{left}", "", curves, yscale="log" if log else "linear")


def _curve(run: Run, name: str, labelled: bool) -> Curve:
    role = {"train": "sam", "test": "gd"}.get(name.partition("_")[0], name if labelled else "sam")
    label = {"sam": "training", "gd": "test"}.get(role, name.partition(".")[2])
    values = run.columns[name].astype(np.float64)
    errors = run.columns.get(f"{name}_stderr")
    error = None if errors is None or not np.any(errors) else errors.astype(np.float64)
    return Curve(label if labelled else "", role, run.columns["epoch"], values[None], error)
