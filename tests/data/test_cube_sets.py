"""xor, parity and the complete training set."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest

from flatlab.data import complete, cube, parity, xor
from flatlab.data.cube import distinct_signs
from flatlab.errors import FlatlabError, UserError
from flatlab.randomness import generator


def distinct_rows(x):
    return len(np.unique(x, axis=0))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_cube_is_every_sign_vector_once(d):
    assert sorted(map(tuple, cube(d))) == sorted(itertools.product((-1.0, 1.0), repeat=d))


@pytest.mark.parametrize(
    ("d", "message"),
    [
        (0, "d must be >= 1, got 0"),
        (21, "d must be <= 20 to enumerate the 2^d points, got 21"),
        (2.5, "d must be a whole number, got 2.5"),
    ],
)
def test_cube_refuses(d, message):
    with pytest.raises(UserError) as caught:
        cube(d)
    assert str(caught.value) == message


@pytest.mark.parametrize(("d", "n"), [(2, 4), (3, 8), (10, 1000), (30, 100), (62, 50), (70, 50)])
def test_distinct_points_are_distinct_signs(d, n):
    x = xor(d=d, n=n, distinct=True, n_test=1).x_train
    assert distinct_rows(x) == n
    assert set(np.unique(x)) == {-1.0, 1.0}


def test_independent_draws_repeat_points():
    # 200 draws out of 256 points: the chance of no repetition is below 1e-50.
    assert distinct_rows(xor(d=8, n=200).x_train) < 200


def test_distinct_points_are_uniform_over_subsets():
    """Every one of the C(4, 2) = 6 pairs of points of {±1}² has the same chance."""
    draws = 3000
    counts: dict[tuple[int, ...], int] = {}
    for index in range(draws):
        points = distinct_signs(generator(0, "test", index), 2, 2)
        key = tuple(sorted((points @ [1, 2]).astype(int)))
        counts[key] = counts.get(key, 0) + 1
    expected = draws / 6
    chi2 = sum((count - expected) ** 2 / expected for count in counts.values())
    assert len(counts) == 6
    assert chi2 < 25.7  # χ² with 5 degrees of freedom exceeds this with probability 1e-4


def test_coordinates_are_fair_and_uncorrelated():
    x = xor(d=10, n=1, n_test=40_000).x_test
    # Every mean and off-diagonal moment has standard deviation 1/√40000 = 0.005; 5σ for 55 of them.
    assert np.abs(x.mean(axis=0)).max() < 0.025
    assert np.abs(x.T @ x / len(x) - np.eye(10)).max() < 0.025


def test_train_and_test_are_uncorrelated():
    data = xor(d=30, n=10_000)
    # A mean of 300,000 products of independent signs has standard deviation 0.0018.
    assert abs(np.mean(data.x_train * data.x_test)) < 5 * 0.0018


def test_exact_test_is_the_population():
    data = xor(d=6, n=10, exact_test=True, n_test=3)
    np.testing.assert_array_equal(data.x_test, cube(6))
    assert np.mean(data.y_test) == 0
    np.testing.assert_array_equal(data.y_test, data.x_test[:, 0] * data.x_test[:, 1])


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_parity_is_uncorrelated_with_every_other_parity(k):
    data = parity(d=5, n=1, k=k, exact_test=True)
    for size in range(6):
        for subset in itertools.combinations(range(5), size):
            moment = np.mean(data.y_test * np.prod(data.x_test[:, subset], axis=1))
            assert moment == (subset == tuple(range(k)))
    assert data.relevant == tuple(range(k))


@pytest.mark.parametrize(("d", "s"), [(3, 2), (5, 4), (8, 7), (8, 64), (30, 29), (30, 40)])
def test_complete_crosses_every_quadrant_with_a_spanning_set(d, s):
    data = complete(d=d, s=s, seed=1, n_test=10)
    assert data.n == 4 * s == distinct_rows(data.x_train)
    sets = [
        {tuple(row[2:]) for row in data.x_train if tuple(row[:2]) == quadrant}
        for quadrant in itertools.product((-1.0, 1.0), repeat=2)
    ]
    assert all(points == sets[0] and len(points) == s for points in sets)
    points = np.array(sorted(sets[0]))
    pairs = itertools.combinations(points, 2)
    assert np.linalg.matrix_rank(np.array([a - b for a, b in pairs])) == d - 2


def test_complete_redraws_sets_that_do_not_span():
    """Of the sets of 7 points of {±1}^6 about 41 % do not span, so 50 seeds meet some."""
    module = importlib.import_module("flatlab.data.cube")
    first_draws = [
        distinct_signs(generator(seed, "data/complete/train"), 7, 6) for seed in range(50)
    ]
    assert not all(module._differences_span(points) for points in first_draws)
    for seed in range(50):
        points = np.unique(complete(d=8, s=7, seed=seed, n_test=0).x_train[:, 2:], axis=0)
        assert np.linalg.matrix_rank(points[1:] - points[0]) == 6


def test_complete_gives_up_with_a_clear_error(monkeypatch):
    module = importlib.import_module("flatlab.data.cube")
    monkeypatch.setattr(module, "_differences_span", lambda points: False)
    with pytest.raises(FlatlabError) as caught:
        complete(d=5, s=4)
    assert str(caught.value) == (
        "no set of s=4 points of {±1}^3 with spanning differences in 100 draws: "
        "raise s or change the seed"
    )
