"""Pictures as data; `report` draws them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


@dataclasses.dataclass(frozen=True)
class Curve:
    """Curves of one kind: y has one row a seed. `role` picks the colour."""

    label: str
    role: str
    x: Array
    y: Array


@dataclasses.dataclass(frozen=True)
class Reference:
    """A horizontal reference, its label below it on the left or above it on the right."""

    label: str
    value: float
    above: bool = False


@dataclasses.dataclass(frozen=True)
class Curves:
    """One set of axes."""

    title: str
    ylabel: str
    curves: tuple[Curve, ...]
    references: tuple[Reference, ...] = ()
    yscale: str = "linear"
    ylim: tuple[float, float] | None = None


@dataclasses.dataclass(frozen=True)
class Dot:
    """One row of `Dots`: a label and one value a seed. `role` picks the colour."""

    label: str
    role: str
    values: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Dots:
    """Axes with one row for each of some things compared: seeds, their mean and its interval.

    `references` are vertical; `within` is what the quantity can be.
    """

    title: str
    xlabel: str
    dots: tuple[Dot, ...]
    references: tuple[Reference, ...] = ()
    xscale: str = "linear"
    within: tuple[float, float] = (-np.inf, np.inf)


@dataclasses.dataclass(frozen=True)
class Plot:
    """A picture: rows of panels over a common x axis. `caption` is one sentence below it.

    `xscale` is "symlog" (epochs), "log" or "linear". Rows of `Dots` have an x axis of their own.
    """

    name: str
    title: str
    panels: tuple[tuple[Curves | Dots, ...], ...]
    xlabel: str = "epoch"
    xscale: str = "symlog"
    caption: str = ""
