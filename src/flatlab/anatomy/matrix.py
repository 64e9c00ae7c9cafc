"""The activation matrix: what each neuron contributes at each training point, sorted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data import Dataset
from ..plots import Span
from .gallery import feature_name, has_features, largest_neurons
from .layers import Array, Layer, magnitudes
from .scores import memorisation_by_layer, sizes

MOST = 400  # neurons shown
MOST_CELLS = 16  # points are grouped by the cells of the relevant coordinates up to this many cells


@dataclass(frozen=True, eq=False)
class ActivationMatrix:
    """One hidden layer, its neurons and the training points in order.

    Neurons are sorted by the point at which they contribute most. So a network that memorises shows
    a diagonal, and one that has learned the cells of the relevant coordinates shows blocks.
    """

    layer: int  # its number, from 1
    neurons: NDArray[np.intp]  # indices of the rows
    points: NDArray[np.intp]  # indices of the columns, by cell of the relevant coordinates or label
    contributions: Array  # c_ij, signed, (neurons, points)
    groups: tuple[Span, ...]  # cells or labels of the columns; empty if neither is known
    memorisation: float
    covered: float  # share of all contributions that the rows make up
    total: int  # number of neurons in the layer


def matrix(data: Dataset, layer: Layer, number: int) -> ActivationMatrix:
    """Return the activation matrix of a hidden layer."""
    points, groups = ordered_points(data)
    size = sizes(layer)
    chosen, whole = largest_neurons(size, MOST), float(size.sum())
    place = magnitudes(layer.contributions[np.ix_(points, chosen)]).argmax(0)
    neurons = chosen[np.lexsort((-size[chosen], place))]
    (score,) = memorisation_by_layer([layer])
    return ActivationMatrix(
        layer=number,
        neurons=neurons,
        points=points,
        contributions=layer.contributions[np.ix_(points, neurons)].T,
        groups=groups,
        memorisation=score,
        covered=float(size[chosen].sum() / whole) if whole > 0 else 0.0,
        total=len(size),
    )


def ordered_points(data: Dataset) -> tuple[NDArray[np.intp], tuple[Span, ...]]:
    """Return the order of the training points, and the groups that it makes.

    Points are grouped by the signs of the relevant coordinates if these are ±1 and few, otherwise
    by label; within a group they keep their order.
    """
    names: list[str] | None = None
    if has_features(data) and 2 ** len(data.relevant) <= MOST_CELLS:
        cells = data.x_train[:, data.relevant]
        order = np.lexsort(-cells.T[::-1])
        names = [feature_name(cells[k], data.relevant) for k in order]
    else:
        order = np.argsort(-data.y_train, kind="stable")
        if np.all(np.abs(data.y_train) == 1):
            names = [f"y = {'+' if data.y_train[k] > 0 else '−'}1" for k in order]
    if names is None:
        return order, ()
    starts = [k for k in range(len(names)) if k == 0 or names[k] != names[k - 1]]
    stops = [*starts[1:], len(names)]
    return order, tuple(Span(names[a], a, b) for a, b in zip(starts, stops, strict=True))
