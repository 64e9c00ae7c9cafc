"""The flattest network found directly, against floors, known optima and brute force."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from flatlab.data import ball, complete, from_arrays, xor
from flatlab.errors import UserError
from flatlab.models import TwoLayer
from flatlab.theory.bounds import batch_norm_xor, bias_floor, no_bias_floor
from flatlab.theory.columns import Neurons
from flatlab.theory.flattest import flattest
from flatlab.theory.pool import Pool
from flatlab.theory.solution import Solution


def misfit(found):
    return np.max(np.abs(found.solution.outputs() - found.solution.data.y_train))


@pytest.mark.parametrize("family", ["no-bias", "bias", "sim-bn"])
def test_the_cost_of_a_neuron_is_its_least_trace_over_rescalings(family):
    data = ball(d=4, n=15, seed=1, n_test=0)
    neurons = Neurons(data, family)
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(1, neurons.points.shape[1]))
    made = neurons.network(direction, np.array([1.7]))
    cost = float(neurons.cost(direction)[0]) * 1.7
    # 1e-7: the first layer's share c/K² for sim-bn, and the 15 bits of the scale otherwise.
    assert made.trace == pytest.approx(cost, rel=1e-7)
    for s in (0.5, 0.9, 1.1, 2.0):
        params = dict(made.params)
        if family == "sim-bn":
            params["gamma"], params["W2"] = s * params["gamma"], params["W2"] / s
        else:
            params["W1"], params["W2"] = s * params["W1"], params["W2"] / s
            if family == "bias":
                params["b1"] = s * params["b1"]
        other = made.with_params(**params)
        np.testing.assert_allclose(other.outputs(), made.outputs(), atol=1e-12)
        assert other.trace > cost


def test_the_network_is_the_combination_of_its_neurons():
    data = ball(d=3, n=10, seed=2, n_test=20)
    neurons = Neurons(data, "bias")
    rng = np.random.default_rng(1)
    directions, coefficients = rng.normal(size=(5, 4)), rng.normal(size=5)
    directions[:, -1] = 1  # alive
    made = neurons.network(directions, coefficients, width=8)
    x = np.hstack([data.x_test, np.ones((20, 1))])
    expected = np.maximum(x @ directions.T, 0) @ coefficients
    np.testing.assert_allclose(made.outputs(data.x_test), expected, atol=1e-12)
    assert made.arch == TwoLayer(width=8)


def test_ascent_raises_the_reduced_cost_to_a_local_maximum():
    data = ball(d=4, n=30, seed=0, n_test=0)
    neurons = Neurons(data, "sim-bn")
    rng = np.random.default_rng(2)
    starts, weights = rng.normal(size=(20, 5)), rng.normal(size=30)
    before = np.abs(weights @ neurons.columns(starts))
    found, values = neurons.ascend(starts, weights, 200)
    np.testing.assert_allclose(np.abs(weights @ neurons.columns(found)), values, rtol=1e-9)
    assert np.all(values >= before - 1e-12)
    near = found[:, None] + 1e-3 * rng.normal(size=(20, 50, 5)) * np.abs(found[:, None])
    around = np.abs(weights @ neurons.columns(near.reshape(-1, 5))).reshape(20, 50)
    # Ascent halves its step at kinks and may stop a little short there.
    assert np.mean(around.max(1) <= values * (1 + 1e-4)) > 0.8


def test_no_bias_memorises_at_the_floor_when_points_are_few():
    data = xor(d=12, n=8, seed=0, distinct=True)
    found = flattest(data, "no-bias")
    assert found.proven and found.limit == pytest.approx(4 * math.sqrt(12), rel=1e-9)
    assert found.reference == no_bias_floor(data)
    assert found.solution.error() > 0.2


def test_neurons_of_one_point_fire_there_alone():
    data = xor(d=10, n=15, seed=0, distinct=True, n_test=0)
    neurons = Neurons(data, "no-bias")
    fires = neurons.points @ neurons.alone().T > 0
    assert fires.shape[1] > 0 and np.all(fires.sum(0) == 1)
    assert len(Neurons(data, "bias").alone()) == 15


def test_bias_reaches_its_floor():
    data = xor(d=6, n=20, seed=0, distinct=True, n_test=0)
    found = flattest(data, "bias")
    assert found.proven and found.trace == pytest.approx(bias_floor(data), rel=1e-9)
    assert misfit(found) < 1e-8


def test_condition_1_gives_eight_and_the_xor_network():
    data = complete(d=8, s=10, seed=0)
    found = flattest(data, "sim-bn")
    assert found.limit == pytest.approx(8, rel=1e-9) and found.neurons == 4
    assert found.dual_bound == pytest.approx(8, rel=1e-9)
    assert found.trace == pytest.approx(8, rel=1e-6) and found.trace > 8
    assert found.solution.error() == 0
    irrelevant = np.abs(found.solution.params["W1"][:, 2:])
    assert irrelevant.max() == 0


def test_condition_1_is_found_from_random_neurons_too():
    found = flattest(complete(d=6, s=5, seed=0), "sim-bn", hints=False, max_rounds=30)
    assert 8 - 1e-9 <= found.limit < 8 + 1e-4


def test_batch_norm_has_flatter_networks_that_do_not_generalise():
    data = xor(d=20, n=60, seed=0)
    found = flattest(data, "sim-bn", max_rounds=10, budget_seconds=60)
    assert found.trace < batch_norm_xor(data) - 0.1
    assert found.dual_bound <= found.limit <= found.trace
    assert misfit(found) < 1e-8 and found.neurons <= 60
    assert found.solution.error() > 0.1


def test_it_is_no_worse_than_a_dense_dictionary_in_the_plane():
    # With d = 1 and a bias, neurons are angles: a fine grid is nearly all of them.
    rng = np.random.default_rng(3)
    data = from_arrays(np.sort(rng.uniform(-1, 1, 6))[:, None], rng.normal(size=6))
    from scipy.optimize import linprog

    neurons = Neurons(data, "bias")
    angles = np.linspace(0, 2 * np.pi, 4000, endpoint=False)
    dense = neurons.tidy(np.stack([np.cos(angles), np.sin(angles)], 1))
    columns = neurons.columns(dense)
    best = linprog(np.ones(2 * len(dense)), A_eq=np.hstack([columns, -columns]), b_eq=data.y_train)
    found = flattest(data, "bias", max_rounds=60, budget_seconds=60)
    assert found.limit <= best.fun * (1 + 1e-3)


def test_off_the_kinks_the_least_trace_is_larger():
    data = xor(d=6, n=24, seed=0, exact_test=True)
    on = flattest(data, "no-bias")
    off = flattest(data, "no-bias", kinks=False, max_rounds=15, budget_seconds=60)
    assert on.on_kinks > 0 and on.proven
    assert on.limit * 1.05 < off.limit <= 4 * math.sqrt(12) * (1 + 1e-9)


def test_interpolating_to_rounding_does_not_cost_flatness():
    # Repeated inputs: the neurons of the linear programme do not span all n outputs.
    data = xor(d=6, n=48, seed=1, n_test=0)
    pool = Pool(Neurons(data, "no-bias", kinks=False), seed=0, hints=True)
    grown = []

    def look(line):
        pool.interpolate()
        directions, coefficients = pool.exact()
        cost = np.sum(pool.family.cost(directions) * np.abs(coefficients))
        outputs = pool.family.activations(directions) @ coefficients
        assert np.max(np.abs(outputs - data.y_train)) < 1e-9
        grown.append(cost / pool.objective - 1)

    pool.run(lambda: pool.rounds >= 25, None, look)
    assert len(grown) == 25 and max(grown) < 1e-6


def test_the_result_depends_on_the_seed_alone():
    data = xor(d=8, n=24, seed=0, n_test=0)
    first, second = (
        flattest(data, "sim-bn", max_rounds=4, budget_seconds=60, seed=1) for _ in range(2)
    )
    assert dataclasses.replace(first, seconds=0, solution=None) == dataclasses.replace(
        second, seconds=0, solution=None
    )
    for name, value in first.solution.params.items():
        np.testing.assert_array_equal(value, second.solution.params[name])


def test_width_is_filled_up_or_refused():
    data = complete(d=6, s=5, seed=0, n_test=0)
    wide = flattest(data, "sim-bn", width=7)
    assert isinstance(wide.solution, Solution) and wide.solution.params["W2"].shape == (7,)
    assert wide.neurons == 4 and misfit(wide) < 1e-8
    with pytest.raises(UserError, match="width must be >= 4, the neurons this network needs"):
        flattest(data, "sim-bn", width=3)


def test_progress_is_told_after_every_round():
    lines = []
    flattest(xor(d=8, n=24, n_test=0), "sim-bn", max_rounds=3, progress=lines.append)
    assert len(lines) == 3 and lines[0].startswith("round 1: ")


def test_mistakes_are_refused():
    data = xor(d=4, n=8, n_test=0)
    with pytest.raises(UserError, match="unknown family 'no-bia'"):
        flattest(data, "no-bia")
    with pytest.raises(UserError, match="budget_seconds must be > 0"):
        flattest(data, "bias", budget_seconds=0)
    twice = from_arrays(np.ones((2, 2)), np.array([1.0, -1.0]))
    with pytest.raises(UserError, match="equal training inputs have different labels"):
        flattest(twice, "bias")
    with pytest.raises(UserError, match="no network of this family interpolates these labels"):
        flattest(from_arrays(np.zeros((1, 4)), np.ones(1)), "no-bias")
    with pytest.raises(UserError, match="every label is zero"):
        flattest(from_arrays(np.eye(2), np.zeros(2)), "bias")
