"""The whole anatomy of one network: scores, largest neurons, activation matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data import Dataset
from ..errors import whole_number
from ..models import Chain, Params
from .gallery import Gallery, gallery, has_features
from .layers import layers
from .matrix import ActivationMatrix, matrix
from .scores import memorisation_by_layer, scores

GALLERY = 40  # neurons
LAYERS = 6  # largest number of activation matrices; deeper networks show evenly spaced layers


@dataclass(frozen=True, eq=False)
class Anatomy:
    """What a trained network looks like on its training set."""

    arch: Chain
    data: Dataset
    memorisation: float  # the least score of the hidden layers
    layers: tuple[float, ...]  # the score of each hidden layer
    features: float | None  # the first layer's share on relevant coordinates, if these are known
    gallery: Gallery
    matrices: tuple[ActivationMatrix, ...]  # of each hidden layer, or of evenly spaced ones
    history: Mapping[str, Any]  # one array a column; empty if there is none

    @property
    def chance(self) -> float | None:
        """The feature score of weights without a preferred coordinate, or None."""
        return len(self.data.relevant) / self.data.d if self.data.relevant else None

    @property
    def cells(self) -> float | None:
        """The memorisation score of a network with one neuron for each cell, or None."""
        if self.data.n < 2 or not has_features(self.data):
            return None
        cells = len(np.unique(self.data.x_train[:, self.data.relevant], axis=0))
        return (cells - 1) / (self.data.n - 1)

    @property
    def groups(self) -> float:
        """How many groups of points share no neuron: 1 + (n − 1) × memorisation."""
        return 1 + (self.data.n - 1) * self.memorisation

    def neurons(self, most: int = 10) -> list[dict[str, Any]]:
        """Return a row for each of the largest neurons, the largest first.

        `share` is ω_j, its share of the contributions at an average point; `output` the sign of its
        output; `angle` the degrees to the nearest feature; `relevant` the share of its squared
        weight on relevant coordinates; `bias` its bias over the norm of its other weights; `points`
        the effective number of training points that it serves.
        """
        g, rows, most = self.gallery, [], whole_number("most", most, least=1)
        has_bias = g.columns[-1:] == ("bias",)
        for k in np.argsort(-g.sizes, kind="stable")[:most]:
            row: dict[str, Any] = {"neuron": int(g.neurons[k]), "share": float(g.sizes[k])}
            row |= {"output": sign_of(g.signs[k]), "points": float(g.points[k])}
            if self.data.relevant:
                row["relevant"] = float(np.sum(g.weights[k, : g.relevant] ** 2))
            if not np.isnan(g.angles[k]):
                row |= {"angle": float(g.angles[k]), "feature": g.features[k]}
            if has_bias:
                row["bias"] = float(g.weights[k, -1])
            rows.append(row)
        return rows


def sign_of(value: float) -> str:
    """Write the sign of a neuron's output; ± if it depends on the point.

    >>> sign_of(1.0), sign_of(-0.9), sign_of(0.2)
    ('+', '−', '±')
    """
    return "±" if abs(value) <= 0.5 else "+" if value > 0 else "−"


def portray(
    arch: Chain, params: Params, data: Dataset, history: Mapping[str, Any] | None = None
) -> Anatomy:
    """Look into a network on its training set."""
    found = layers(arch, params, data.x_train)
    values = scores(arch, params, data)
    shown = np.unique(np.linspace(0, len(found) - 1, min(LAYERS, len(found))).round().astype(int))
    return Anatomy(
        arch=arch,
        data=data,
        memorisation=values["memorisation"],
        layers=tuple(memorisation_by_layer(found)),
        features=values.get("features"),
        gallery=gallery(params, data, found[0], GALLERY),
        matrices=tuple(matrix(data, found[k], int(k) + 1) for k in shown),
        history=history or {},
    )
