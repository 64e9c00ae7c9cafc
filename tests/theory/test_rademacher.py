"""Rademacher complexities against definitions written out, dense grids and closed forms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from flatlab.errors import UserError
from flatlab.theory import rademacher
from flatlab.theory.rademacher import finite_class, path_norm_ball


def written_out(values):
    n = len(values[0])
    signs = itertools.product((-1, 1), repeat=n)
    return sum(max(np.dot(s, f) for f in values) for s in signs) / 2**n / n


def by_angles(x, count=20_001):
    angles = np.linspace(0, 2 * math.pi, count)
    h = np.maximum(x @ np.stack([np.cos(angles), np.sin(angles)]), 0)
    signs = np.array(list(itertools.product((-1, 1), repeat=len(x))))
    return np.abs(signs @ h).max(1).mean() / len(x)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_finite_class_is_the_definition(n):
    values = np.random.default_rng(n).normal(size=(7, n))
    found = finite_class(values)
    assert found.value == pytest.approx(written_out(values), rel=1e-12)
    assert (found.standard_error, found.signs) == (0.0, 2**n)


def test_drawn_signs_are_within_their_standard_error():
    values = np.random.default_rng(0).normal(size=(20, 9))
    drawn = finite_class(values, draws=20_000, rng=np.random.default_rng(1))
    assert abs(drawn.value - finite_class(values).value) < 4 * drawn.standard_error
    assert drawn.signs == 20_000


def test_drawn_signs_have_the_standard_error_of_scipy():
    found = finite_class([[1.0, 2.0, 3.0]], draws=5, rng=np.random.default_rng(1))
    drawn = np.random.default_rng(1).choice([-1.0, 1.0], size=(5, 3)) @ [1.0, 2.0, 3.0] / 3
    assert found.value == pytest.approx(drawn.mean(), rel=1e-12)
    assert found.standard_error == pytest.approx(stats.sem(drawn), rel=1e-12)


def test_a_class_too_large_for_one_piece_is_the_same(monkeypatch):
    values = np.random.default_rng(0).normal(size=(11, 8))
    whole, plane = finite_class(values), path_norm_ball(values[:, :2])
    monkeypatch.setattr(rademacher, "_AT_ONCE", 500)
    assert finite_class(values) == whole
    assert path_norm_ball(values[:, :2]).value == pytest.approx(plane.value, rel=1e-12)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_the_plane_is_exact(n):
    x = np.random.default_rng(n).normal(size=(n, 2))
    found = path_norm_ball(x)
    assert found.exact_supremum and found.standard_error == 0.0
    grid = by_angles(x)
    # A grid falls short of the supremum, by at most the largest slope times half a step.
    short = np.linalg.norm(x, axis=1).sum() / n * math.pi / 20_000
    assert grid <= found.value + 1e-12
    assert found.value <= grid + short


def test_the_supremum_of_one_point_is_its_length():
    assert path_norm_ball([[3.0, 4.0]]).value == pytest.approx(5)
    assert path_norm_ball([[3.0, 0.0, 4.0]], draws=2).value == pytest.approx(5)


def test_on_a_line_only_two_directions_exist():
    x = np.array([[1.0], [-2.0], [0.5], [0.0]])
    h = np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)], 1).T
    assert path_norm_ball(x).value == pytest.approx(written_out([*h, *-h]), rel=1e-12)


def test_zeros_have_no_complexity():
    for d in (1, 2, 3):
        assert path_norm_ball(np.zeros((4, d)), draws=3).value == 0


def test_repeated_and_collinear_points_are_exact_too():
    x = np.array([[1.0, 1.0], [1.0, 1.0], [-2.0, -2.0], [0.0, 0.0], [1.0, -1.0]])
    assert path_norm_ball(x).value == pytest.approx(by_angles(x), rel=1e-5)


def test_the_ascent_comes_close_to_the_sweep_from_below():
    x = np.random.default_rng(3).normal(size=(12, 2))
    flat = np.hstack([x, np.zeros((12, 1))])  # the same problem in three dimensions
    sweep = path_norm_ball(x, draws=200, rng=np.random.default_rng(5))
    ascent = path_norm_ball(flat, draws=200, rng=np.random.default_rng(5))
    assert not ascent.exact_supremum and ascent.restarts == 20
    assert 0.99 * sweep.value < ascent.value <= sweep.value * (1 + 1e-12)


def test_value_and_bound_scale():
    x = np.random.default_rng(0).normal(size=(6, 2))
    one, three = path_norm_ball(x), path_norm_ball(2 * x, C=3)
    assert three.value == pytest.approx(6 * one.value, rel=1e-12)
    assert three.bound == pytest.approx(6 * one.bound, rel=1e-12)
    assert one.bound == pytest.approx(2 * np.linalg.norm(x, axis=1).max() / math.sqrt(6))
    assert one.value < one.bound


def test_without_a_generator_it_is_the_same_every_time():
    x = np.random.default_rng(0).normal(size=(20, 4))
    assert path_norm_ball(x, draws=10) == path_norm_ball(x, draws=10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: finite_class([1.0, 2.0]), "values must be 2-D and not empty, got shape (2,)"),
        (lambda: finite_class([["a"]]), "values must be a matrix of numbers"),
        (lambda: finite_class([[1.0, math.nan]]), "values must hold finite numbers only"),
        (
            lambda: finite_class(np.zeros((2, 17))),
            "n must be <= 16 to enumerate 2^n signs, got 17: give draws",
        ),
        (lambda: finite_class([[1.0]], draws=1), "draws must be >= 2, got 1"),
        (lambda: path_norm_ball(np.zeros((0, 2))), "x must be 2-D and not empty, got shape (0, 2)"),
        (lambda: path_norm_ball([[1.0]], C=0), "C must be > 0 and finite, got 0"),
        (lambda: path_norm_ball([[1.0]], C=math.inf), "C must be > 0 and finite, got inf"),
        (
            lambda: path_norm_ball([[1.0, 2.0, 3.0]], restarts=0),
            "restarts must be >= 1, got 0",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(UserError) as caught:
        call()
    assert str(caught.value) == message
