"""The first layer, neuron by neuron: which direction each looks in, and how much it contributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data import Dataset
from ..models import Params
from .layers import Array, Layer, magnitudes, over
from .scores import sizes

# Neurons are shown, the largest first, until they make up this share of all contributions.
COVERED = 0.995
ANGLE = 30.0  # a neuron within this many degrees of a feature ±x1±x2… is labelled with it


@dataclass(frozen=True, eq=False)
class Gallery:
    """The neurons of the first layer that contribute most, sorted by feature, then by size.

    Of a neuron's weights only the direction is shown, because how its scale is shared between its
    two layers is arbitrary; its size is what it contributes.
    """

    neurons: NDArray[np.intp]  # their indices
    weights: Array  # (w_j, b_j)/‖w_j‖, one row for each neuron
    columns: tuple[str, ...]  # names of the coordinates, the relevant ones first, the bias last
    features: tuple[str, ...]  # the feature each neuron is marked with, or ""
    angles: Array  # degrees between w_j and the nearest feature; NaN where there are no features
    signs: Array  # from −1 to 1: Σ_i c_ij sign(u_ij) / Σ_i |c_ij|, for two layers the sign of a_j
    sizes: Array  # ω_j, the share of the contributions at an average training point
    points: Array  # effective number of training points served, (Σ_i|c_ij|)² / Σ_i c_ij²
    relevant: int  # how many of the columns are relevant coordinates
    total: int  # number of neurons in the layer


def gallery(params: Params, data: Dataset, first: Layer, most: int) -> Gallery:
    """Return the gallery of the neurons that contribute most, at most `most` of them."""
    size = sizes(first)
    largest = largest_neurons(size, most)
    W1 = np.asarray(params["W1"], np.float64)[largest]
    names, angles = nearest_features(W1, data)
    # Neurons without a feature come last.
    order = sorted(range(len(largest)), key=lambda k: (not names[k], names[k], -size[largest[k]]))
    chosen = largest[order]
    u, c = first.activations[:, chosen], first.contributions[:, chosen]
    absolute = magnitudes(c)
    total = absolute.sum(0)
    coordinates = [*data.relevant, *(k for k in range(data.d) if k not in data.relevant)]
    weights, columns = W1[order][:, coordinates], [f"x{k + 1}" for k in coordinates]
    if "b1" in params:
        weights = np.column_stack([weights, params["b1"][chosen]])
        columns.append("bias")
    return Gallery(
        neurons=chosen,
        weights=over(weights, np.linalg.norm(W1[order], axis=1)[:, None]),
        columns=tuple(columns),
        features=tuple(names[k] for k in order),
        angles=angles[order],
        signs=over((np.sign(c * u) * absolute).sum(0), total),
        sizes=size[chosen],
        points=over(total**2, (absolute**2).sum(0)),
        relevant=len(data.relevant),
        total=len(size),
    )


def largest_neurons(size: Array, most: int) -> NDArray[np.intp]:
    """Return the neurons that together make up `COVERED` of all contributions, the largest first.

    >>> largest_neurons(np.array([0.001, 0.3, 0.0, 0.699]), 10).tolist()
    [3, 1]
    """
    order = np.argsort(-size, kind="stable")
    reached = np.cumsum(size[order])
    if not reached[-1] > 0:
        return order[:0]
    return order[: min(int(np.searchsorted(reached, COVERED * reached[-1])) + 1, most)]


def has_features(data: Dataset) -> bool:
    """Return whether features ±x1±x2… exist: relevant coordinates are known, and are ±1."""
    return bool(data.relevant) and bool(np.all(np.abs(data.x_train[:, data.relevant]) == 1))


def nearest_features(W1: Array, data: Dataset) -> tuple[list[str], Array]:
    """Return the feature within `ANGLE` of each row, or "", and the angle to the nearest feature.

    The features are the 2^k sums ±x1±x2… of the k relevant coordinates. The one nearest to w has
    the signs of w; the cosine of the angle between them is Σ_R|w_r| / (√k ‖w‖).
    """
    if not has_features(data):
        return [""] * len(W1), np.full(len(W1), np.nan)
    part = W1[:, data.relevant]
    cosine = over(np.abs(part).sum(1), np.sqrt(part.shape[1]) * np.linalg.norm(W1, axis=1))
    angles = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    names = [
        feature_name(row, data.relevant) if angle <= ANGLE else ""
        for row, angle in zip(part, angles, strict=True)
    ]
    return names, angles


def feature_name(signs: Array, relevant: Sequence[int]) -> str:
    """Name a feature by its signs.

    >>> feature_name(np.array([0.3, -2.0]), (0, 1))
    '+x1−x2'
    """
    pairs = zip(signs, relevant, strict=True)
    return "".join(f"{'+' if sign >= 0 else '−'}x{index + 1}" for sign, index in pairs)
