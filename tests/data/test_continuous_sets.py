"""ball, sphere, circle and the Gaussian mixture: moments known in closed form.

Every statistical tolerance is 5 standard errors of the tested average.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from flatlab.data import ball, circle, gaussian_mixture, sphere

N = 100_000


def assert_mean(values, expected):
    values = np.asarray(values, dtype=float)
    tolerance = 5 * values.std() / math.sqrt(len(values))
    assert abs(values.mean() - expected) < tolerance


@pytest.mark.parametrize("d", [2, 10])
def test_ball_is_uniform(d):
    data = ball(d=d, n=1, n_test=N)
    radius = np.linalg.norm(data.x_test, axis=1) / math.sqrt(d)
    assert radius.max() <= 1 + 1e-14
    assert_mean(radius**d, 1 / 2)  # (‖x‖/√d)^d is uniform on [0, 1]
    assert_mean(radius ** (2 * d), 1 / 3)
    assert_mean(data.x_test[:, 1] ** 2, d / (d + 2))
    assert_mean(data.x_test[:, 0], 0)
    assert_mean(data.x_test[:, 0] * data.x_test[:, 1], 0)


@pytest.mark.parametrize("d", [3, 10])
def test_sphere_has_the_sphere_s_moments(d):
    x = sphere(d=d, n=1, n_test=N).x_test
    assert_mean(x[:, 0] ** 2, 1)
    # E u1⁴ = 3/(d(d+2)) and E u1²u2² = 1/(d(d+2)) on the unit sphere, times d² here.
    assert_mean(x[:, 0] ** 4, 3 * d / (d + 2))
    assert_mean(x[:, 0] ** 2 * x[:, 1] ** 2, d / (d + 2))


def test_sphere_in_one_dimension_is_a_sign():
    data = sphere(d=1, n=50, target="linear")
    assert set(data.y_train) == {-1.0, 1.0}


def test_circle_angle_is_uniform():
    data = circle(n=1, n_test=N, target="triangle")
    theta = np.arctan2(data.x_test[:, 1], data.x_test[:, 0])
    for frequency in (1, 2, 3):
        assert_mean(np.cos(frequency * theta), 0)
        assert_mean(np.sin(frequency * theta), 0)
    # The triangle wave of a uniform angle is uniform on [−1, 1].
    assert np.abs(data.y_test).max() <= 1
    assert_mean(data.y_test, 0)
    assert_mean(data.y_test**2, 1 / 3)


@pytest.mark.parametrize(("target", "constant"), [("cosine", 1.0), ("triangle", 2 / np.pi)])
def test_circle_targets_are_lipschitz_in_the_angle(target, constant):
    data = circle(n=1, n_test=5000, target=target)
    theta = np.arctan2(data.x_test[:, 1], data.x_test[:, 0])
    order = np.argsort(theta)
    steps = np.diff(theta[order])
    assert np.all(np.abs(np.diff(data.y_test[order])) <= constant * steps + 1e-14)


@pytest.mark.parametrize(("d", "R"), [(3, 1.5), (3, 1 + 1e-9), (7, 4.0), (40, 1e200)])
def test_circle_keeps_the_unit_circle_and_the_total_norm(d, R):
    x = circle(n=200, d=d, R=R, n_test=0).x_train
    np.testing.assert_allclose(np.hypot(x[:, 0], x[:, 1]), 1, rtol=1e-14)
    # √(R−1) of an R within 1e-9 of 1 is relative to R's own rounding.
    np.testing.assert_allclose(np.linalg.norm(x / R, axis=1), 1, rtol=1e-14)


def test_circle_radius_unset_gives_every_coordinate_variance_one_half():
    data = circle(n=1, d=6, n_test=N)
    assert data.spec["R"] == math.sqrt(3)
    for j in range(6):
        assert_mean(data.x_test[:, j] ** 2, 1 / 2)


def test_four_clusters_look_like_xor():
    separation = 1.5
    data = gaussian_mixture(d=4, n=1, separation=separation, n_test=N)
    x, y = data.x_test, data.y_test
    p = 0.5 * math.erfc(separation / math.sqrt(2))
    assert_mean(y, 0)
    assert_mean(x[:, 0] * x[:, 1] * y, separation**2)
    assert_mean(np.sign(x[:, 0] * x[:, 1]) != y, 2 * p * (1 - p))
    assert_mean(x[:, 0] ** 2, separation**2 + 1)
    assert_mean(x[:, 2] ** 2, 1)
    assert_mean(x[:, 0] * y, 0)


def test_two_clusters_are_linearly_separated():
    data = gaussian_mixture(d=4, n=1, separation=1.5, clusters=2, n_test=N)
    x, y = data.x_test, data.y_test
    assert_mean(x[:, 0] * y, 1.5)
    assert_mean(np.sign(x[:, 0]) != y, 0.5 * math.erfc(1.5 / math.sqrt(2)))
    assert_mean(x[:, 1] ** 2, 1)


def test_the_smallest_dimension_of_each():
    assert gaussian_mixture(d=1, n=5, clusters=2).d == 1
    assert ball(d=2, n=5).d == sphere(d=2, n=5).d == circle(n=5).d == 2
