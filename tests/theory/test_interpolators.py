"""Networks that interpolate: they do, they are different, and descending makes them flatter."""

from __future__ import annotations

import numpy as np
import pytest

from flatlab.claims import Trial
from flatlab.data import from_arrays, sphere, xor
from flatlab.errors import UserError
from flatlab.models import Deep, TwoLayer
from flatlab.theory.bounds import bias_floor, layer_norm_floor, no_bias_floor
from flatlab.theory.interpolators import (
    flattened,
    interpolating,
    last_features,
    random_interpolators,
)

DATA = xor(d=5, n=10, seed=0, distinct=True, n_test=0)
ARCHITECTURES = {
    "no bias": TwoLayer(width=20, bias=False),
    "bias": TwoLayer(width=20),
    "softplus": TwoLayer(width=20, activation="softplus"),
    "batch": TwoLayer(width=20, norm="batch"),
    "layer": TwoLayer(width=20, norm="layer", ln_epsilon=0.1),
    "three layers": Deep(depth=3, width=20),
}
each = pytest.mark.parametrize("arch", ARCHITECTURES.values(), ids=ARCHITECTURES)


def misfit(solution):
    return np.max(np.abs(solution.outputs() - DATA.y_train))


@each
def test_random_networks_interpolate_and_differ(arch):
    found = random_interpolators(arch, DATA, np.random.default_rng(0), 3)
    assert len(found) == 3
    assert max(misfit(solution) for solution in found) < 1e-9
    assert len({round(solution.trace, 6) for solution in found}) == 3


@each
def test_features_times_the_last_layer_are_the_outputs(arch):
    found = random_interpolators(arch, DATA, np.random.default_rng(1), 1)[0]
    weights = found.params[arch.last_layer]
    np.testing.assert_allclose(last_features(found) @ weights, found.outputs(), atol=1e-12)


@each
def test_descending_flattens_and_keeps_interpolating(arch):
    start = random_interpolators(arch, DATA, np.random.default_rng(2), 1, rescale=False)
    end = flattened(start, 15)[0]
    assert end.trace < 0.8 * start[0].trace
    assert misfit(end) < 1e-9


def test_a_descent_that_leaves_the_interpolators_returns_one_that_interpolates():
    """At this start a neuron dies on the way, and five directions are left for six points."""
    base, rng = sphere(d=4, n=6, seed=2, n_test=0), Trial(2).rng("thm4.1")
    labels = rng.uniform(0.5, 2, 6) * rng.choice([-1.0, 1.0], 6)
    data = from_arrays(base.x_train, labels)
    starts = random_interpolators(TwoLayer(width=24), data, Trial(2).rng("thm4.1:down"), 3)
    for start, end in zip(starts, flattened(starts, 150), strict=True):
        assert np.max(np.abs(end.outputs() - labels)) < 1e-8
        assert end.trace < start.trace


def test_descending_comes_near_the_floors_and_not_below():
    rng = np.random.default_rng(3)
    for arch, floor in (
        (TwoLayer(width=20), bias_floor(DATA)),
        (TwoLayer(width=20, norm="layer", ln_epsilon=0.1), layer_norm_floor(DATA, 0.1)),
    ):
        end = flattened(random_interpolators(arch, DATA, rng, 1, rescale=False), 100)[0]
        assert floor * (1 - 1e-10) <= end.trace < 1.15 * floor
    plain = TwoLayer(width=20, bias=False)
    end = flattened(random_interpolators(plain, DATA, rng, 1, rescale=False), 100)[0]
    assert no_bias_floor(DATA) * (1 - 1e-10) <= end.trace < 2 * no_bias_floor(DATA)


def test_the_correction_is_the_least_change():
    found = random_interpolators(TwoLayer(width=20), DATA, np.random.default_rng(4), 1)[0]
    moved = found.with_params(W2=found.params["W2"] + 1.0)
    fixed = interpolating(moved)
    change = fixed.params["W2"] - moved.params["W2"]
    features = last_features(moved)
    inside = features.T @ np.linalg.lstsq(features.T, change, rcond=None)[0]
    np.testing.assert_allclose(inside, change, atol=1e-10)
    assert misfit(fixed) < 1e-9


def test_too_narrow_is_refused():
    with pytest.raises(UserError, match="take a larger width"):
        random_interpolators(TwoLayer(width=4), DATA, np.random.default_rng(0), 1)
