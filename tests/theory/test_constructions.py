"""Constructions of the proofs attain what their statements promise."""

import numpy as np
import pytest
import torch

import flatlab as fl
from flatlab.errors import UserError
from flatlab.theory import bounds, geometry
from flatlab.theory.constructions import (
    CONSTRUCTIONS,
    balanced,
    circle_as_printed,
    construct,
    descriptions,
    layer_norm_memorising,
    memorising,
    no_bias_xor,
    norm_balanced,
)
from flatlab.theory.predicates import (
    interpolates,
    is_extreme,
    is_memorising,
    path_norm,
    satisfies_condition_1,
)
from flatlab.theory.solution import Solution

XOR = fl.data.xor(d=8, n=20, seed=1, n_test=500)
FEW = fl.data.xor(d=24, n=20, seed=0, n_test=500)
SPHERE = fl.data.sphere(d=5, n=12, seed=0, n_test=100)
BALL = fl.data.ball(d=10, n=30, seed=0, n_test=100)
CIRCLE = fl.data.circle(n=25, seed=0, d=4, n_test=2000)


def even_circle(n):
    angles = 2 * np.pi * (np.arange(n) + 0.3) / n
    fine = np.linspace(0, 2 * np.pi, 5000)
    points = [np.stack([np.cos(a), np.sin(a)], 1) for a in (angles, fine)]
    return fl.data.from_arrays(points[0], np.cos(angles), points[1], np.cos(fine))


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
@pytest.mark.parametrize("data", [XOR, SPHERE, BALL], ids=["cube", "sphere", "ball"])
def test_memorising_is_at_the_floor_and_memorises(depth, data):
    made = memorising(data, depth=depth, width=data.n + 3)
    assert is_memorising(made)
    assert made.trace == pytest.approx(bounds.bias_floor(data, depth), rel=1e-9)


def test_memorising_is_zero_at_every_other_point_of_the_cube():
    rest = fl.data.cube(8)
    seen = (rest[:, None] == XOR.x_train[None]).all(-1).any(1)
    outputs = memorising(XOR).outputs(rest)
    assert np.all(outputs[~seen] == 0) and np.all(outputs[seen] != 0)


AT_THE_FLOOR = {
    "four-neurons": (XOR, lambda data: bounds.bias_floor(data)),
    "finite-labels": (XOR, lambda data: bounds.bias_floor(data)),
    "circle-steps": (even_circle(12), lambda data: bounds.bias_floor(data)),
    "layer-norm-memorising": (XOR, lambda data: bounds.layer_norm_floor(data, 1e-3)),
    "layer-norm-four-neurons": (XOR, lambda data: bounds.layer_norm_floor(data, 1e-3)),
    "no-bias-memorising": (FEW, lambda data: bounds.no_bias_floor(data)),
    "lecture-memorising:mended": (XOR, lambda data: bounds.bias_floor(data)),
}


@pytest.mark.parametrize("name", AT_THE_FLOOR)
def test_a_construction_is_at_its_floor(name):
    data, floor = AT_THE_FLOOR[name]
    name, _, option = name.partition(":")
    made = construct(name, data, {option: True} if option else None)
    assert interpolates(made)
    assert made.trace == pytest.approx(floor(data), rel=1e-9)


def test_the_mended_lecture_network_memorises_where_the_printed_one_does_not():
    printed, mended = (construct("lecture-memorising", XOR, {"mended": m}) for m in (False, True))
    assert not interpolates(printed) and is_memorising(mended)
    rest = fl.data.cube(8)
    seen = (rest[:, None] == XOR.x_train[None]).all(-1).any(1)
    assert not mended.outputs(rest[~seen]).any() and printed.outputs(rest[~seen]).any()
    # it keeps the directions of the lecture
    units = mended.params["W1"] / np.linalg.norm(mended.params["W1"], axis=1, keepdims=True)
    np.testing.assert_allclose(units, printed.params["W1"], atol=1e-12)
    inside = fl.data.from_arrays([[1.0, 0.0], [3.0, 1.0]], [1.0, 1.0])
    with pytest.raises(UserError, match=r"which point 0 .* violates: use memorising"):
        construct("lecture-memorising", inside, {"mended": True})
    with pytest.raises(UserError, match="mended must be True or False, got 2"):
        construct("lecture-memorising", XOR, {"mended": 2})


@pytest.mark.parametrize("name", ["four-neurons", "finite-labels", "layer-norm-four-neurons"])
def test_generalising_constructions_make_no_error(name):
    assert construct(name, XOR).error() == 0


def test_batch_norm_falls_to_its_infimum_like_one_over_the_square():
    data = fl.data.complete(d=6, s=5, seed=0)
    floor = bounds.batch_norm_xor(data)
    assert floor == pytest.approx(8)
    excess = [construct("xor-batch-norm", data, {"scale": K}).trace - floor for K in (1, 10, 100)]
    assert excess[0] / excess[1] == pytest.approx(100, rel=1e-6)
    assert excess[1] / excess[2] == pytest.approx(100, rel=1e-6)


def test_layer_norm_takes_all_three_cases():
    x = fl.data.sphere(d=4, n=6, seed=0).x_train
    size = np.sqrt((x**2).sum(1) + 1)
    q = np.array([5.0, 0.8, 0.55, 0.45, 0.2, 0.0])  # against ε = 1, threshold 1/2
    data = fl.data.from_arrays(x, q / size)
    made = layer_norm_memorising(data, ln_epsilon=1.0, zero_labels=True)
    assert interpolates(made)
    assert made.trace == pytest.approx(bounds.layer_norm_floor(data, 1.0), rel=1e-9)
    printed = layer_norm_memorising(data, ln_epsilon=1.0, threshold=1.0, zero_labels=True)
    assert interpolates(printed) and printed.trace > 1.1 * made.trace


def test_no_bias_jumps_on_the_kink():
    floor = bounds.no_bias_floor(XOR)
    assert no_bias_xor(XOR, 0.0).trace == pytest.approx(floor)
    assert no_bias_xor(XOR, 1e-6).trace == pytest.approx(np.sqrt(2) * floor, rel=0.05)
    assert no_bias_xor(XOR, 0.1).error() == 0


def test_the_printed_circle_network_does_not_interpolate():
    assert circle_as_printed(CIRCLE).loss() > 1


def test_the_steps_on_the_circle_learn_with_more_points():
    losses = [
        construct("circle-steps", even_circle(n), {"edge": 0.002}).test_loss() for n in (6, 12, 25)
    ]
    assert losses[0] > 3 * losses[1] > 9 * losses[2]


def test_the_steps_on_a_random_circle_are_flattest_too():
    made = construct("circle-steps", CIRCLE)
    assert interpolates(made, 1e-6)
    assert made.trace == pytest.approx(bounds.bias_floor(CIRCLE), rel=1e-6)


def _random(seed, bias=True):
    arch = fl.models.TwoLayer(width=7, bias=bias)
    return Solution(arch, arch.initial(XOR.d, seed), XOR)


@pytest.mark.parametrize("rescale", [balanced, norm_balanced])
def test_rescaling_keeps_the_function(rescale):
    before = _random(0)
    after = rescale(before)
    np.testing.assert_allclose(after.outputs(), before.outputs(), rtol=1e-12, atol=1e-12)


def test_balancing_is_the_flattest_rescaling():
    best = balanced(_random(1)).trace
    rng = np.random.default_rng(0)
    from flatlab.theory.constructions.balancing import rescaled

    for _ in range(50):
        other = rescaled(_random(1), np.exp(rng.normal(size=7)))
        assert other.trace >= best * (1 - 1e-12)


def test_norm_balancing_turns_squares_into_the_path_norm():
    made = norm_balanced(_random(2, bias=False))
    squares = np.sum(made.params["W1"] ** 2) + XOR.d * np.sum(made.params["W2"] ** 2)
    assert squares == pytest.approx(2 * np.sqrt(XOR.d) * path_norm(made), rel=1e-12)


@pytest.mark.parametrize("norm", [None, "batch", "layer"])
def test_a_solutions_gradients_are_autograds(norm):
    arch = fl.models.TwoLayer(width=5, norm=norm)
    made = Solution(arch, arch.initial(XOR.d, 3), XOR)
    x = torch.tensor(XOR.x_train)
    for i, found in enumerate(made.gradients()):
        made.module.zero_grad()
        made.module(x[[i]])[0].backward()
        expected = torch.cat([p.grad.flatten() for p in made.module.parameters()]).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_extreme_points_by_linear_programming():
    inside = np.array([[0.0, 0], [2, 0], [0, 2], [2, 2], [1, 1], [1, 0]])  # inside, on an edge
    assert is_extreme(inside).tolist() == [True] * 4 + [False] * 2
    assert is_extreme(BALL.x_train).all()
    found = geometry.separate(BALL.x_train)
    gaps = np.sum(found.directions * BALL.x_train, 1)[:, None] - found.directions @ BALL.x_train.T
    np.fill_diagonal(gaps, np.inf)
    assert np.allclose(gaps.min(1), found.margins) and found.margins.min() > 0


def test_points_close_together_on_a_circle_are_extreme_all_the_same():
    angles = np.array([0.0, 1e-6, 1.5, 3.0])  # 1 − cos is rounding for the first two
    assert is_extreme(np.stack([np.cos(angles), np.sin(angles)], 1)).all()


def test_condition_1():
    assert satisfies_condition_1(fl.data.complete(d=6, s=5, seed=0))
    assert not satisfies_condition_1(XOR)


MISTAKES = {
    "a point inside": (
        "memorising",
        fl.data.from_arrays([[0.0, 0], [2, 0], [0, 2], [0.5, 0.5]], [1, 1, 1, 1]),
        {},
        "point 3",
    ),
    "equal points": (
        "memorising", fl.data.from_arrays([[1.0, 0], [0, 1], [1, 0]], [1, 1, 1]), {}, "0 and 2",
    ),
    "a zero label with LayerNorm": (
        "layer-norm-memorising", fl.data.from_arrays([[1.0, 0], [0, 1]], [1, 0]), {}, "label 1",
    ),
    "huge inputs": (
        "memorising", fl.data.from_arrays([[1e200, 0], [0, 1e200]], [1, 1]), {}, "rescale",
    ),
    "a zero label": ("memorising", fl.data.from_arrays([[1.0, 0], [0, 1]], [1, 0]), {}, "label 1"),
    "spikes too narrow": ("memorising", XOR, {"epsilon": 1e-12}, "float64"),
    "spikes too wide": ("memorising", XOR, {"epsilon": 9.0}, "margin"),
    "too few neurons": ("memorising", XOR, {"width": 3}, "width"),
    "one layer": ("memorising", XOR, {"depth": 1}, "depth"),
    "no xor": ("four-neurons", SPHERE, {}, "x1*x2"),
    "one coordinate": (
        "four-neurons", fl.data.from_arrays([[1.0], [-1.0]], [1, -1]), {}, "d >= 2",
    ),
    "a quadrant is empty": (
        "xor-batch-norm", fl.data.from_arrays([[1.0, 1], [1, -1]], [1, -1]), {}, "quadrant",
    ),
    "dependent inputs": ("no-bias-memorising", fl.data.xor(d=4, n=8, seed=0), {}, "n <= d"),
    "no circle": ("circle-steps", SPHERE, {}, "x1² + x2²"),
    "unknown name": ("memorizing", XOR, {}, "memorising"),
    "unknown option": ("memorising", XOR, {"eps": 1}, "epsilon"),
    "not a number": ("four-neurons", XOR, {"r": "large"}, "r must be"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_clear_line(mistake):
    name, data, options, part = MISTAKES[mistake]
    with pytest.raises(UserError) as caught:
        construct(name, data, options)
    assert part in str(caught.value) and "\n" not in str(caught.value)


def test_every_construction_is_described():
    assert set(descriptions()) == set(CONSTRUCTIONS)
    assert all(descriptions().values())
