"""Architectures: outputs, invariance to scalings, and initial weights."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from flatlab import data
from flatlab.errors import UserError
from flatlab.models import Deep, Init, TwoLayer, build

sys.path.insert(0, str(Path(__file__).parents[1]))

import oracle

RNG = np.random.default_rng(8)
N, D, WIDTH = 17, 5, 9
DATA = data.from_arrays(
    RNG.normal(size=(N, D)), RNG.choice([-1.0, 1.0], N), RNG.normal(size=(6, D)), np.ones(6)
)
ACTIVATIONS = {
    "relu": lambda h: np.maximum(h, 0),
    "softplus": lambda h: np.log1p(np.exp(h)),
    "tanh": np.tanh,
    "identity": lambda h: h,
}
# Float64 and sums of a dozen terms of order one: exact statements hold to 1e-10 with room to spare.
EXACT = 1e-10


def random_params(arch, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in arch.shapes(D).items()}


def outputs(arch, params, x=None):
    return oracle.outputs(arch, params, DATA, x)


def first_layer_gradients(arch, params):
    """Return ∂f/∂W1 and ∂f/∂b1, one row an example."""
    J = oracle.jacobian(arch, params, DATA)
    return np.hstack([J[:, oracle.columns_of(params, name)] for name in ("W1", "b1")])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_a_plain_network_is_its_formula(activation, bias):
    arch = TwoLayer(width=WIDTH, bias=bias, activation=activation)
    params = random_params(arch)
    h = DATA.x_test @ params["W1"].T + (params["b1"] if bias else 0)
    expected = ACTIVATIONS[activation](h) @ params["W2"]
    np.testing.assert_allclose(outputs(arch, params, DATA.x_test), expected, rtol=1e-12)


def test_a_deep_network_is_its_formula():
    arch = Deep(depth=4, width=WIDTH)
    params = random_params(arch)
    u = np.maximum(DATA.x_test @ params["W1"].T + params["b1"], 0)
    u = np.maximum(params["W2"] @ u.T, 0)
    u = np.maximum(params["W3"] @ u, 0)
    np.testing.assert_allclose(outputs(arch, params, DATA.x_test), params["W4"] @ u, rtol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
def test_a_deep_network_of_depth_two_is_the_two_layer_network(bias):
    two, deep = TwoLayer(width=WIDTH, bias=bias), Deep(depth=2, width=WIDTH, bias_first=bias)
    assert two.shapes(D) == deep.shapes(D)
    params = two.initial(D, seed=3)
    again = deep.initial(D, seed=3)
    assert all((params[k] == again[k]).all() for k in params)
    assert (outputs(two, params) == outputs(deep, params)).all()


# wen2023.arch.simbn


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_sim_bn_gives_every_neuron_mean_square_one(activation):
    arch = TwoLayer(width=WIDTH, norm="batch", activation=activation)
    params = random_params(arch)
    params["gamma"] = np.ones(WIDTH)
    for j in range(WIDTH):
        params["W2"] = np.eye(WIDTH)[j]
        assert (outputs(arch, params) ** 2).mean() == pytest.approx(1, abs=EXACT)
        params["W2"] = np.eye(WIDTH)[j] * 3  # γ and W2 enter by their product
        params["gamma"][j] = -0.5
        assert (outputs(arch, params) ** 2).mean() == pytest.approx(2.25, abs=EXACT)
        params["gamma"][j] = 1


def test_sim_bn_does_not_see_the_scale_of_a_neuron():
    """The output is invariant under (W1, b1)_j → c_j (W1, b1)_j, its gradient goes as 1/c_j."""
    arch = TwoLayer(width=WIDTH, norm="batch")
    params = random_params(arch)
    c = np.exp(np.linspace(-3, 3, WIDTH))
    scaled = {**params, "W1": params["W1"] * c[:, None], "b1": params["b1"] * c}
    for x in (DATA.x_train, DATA.x_test):
        np.testing.assert_allclose(
            outputs(arch, scaled, x), outputs(arch, params, x), rtol=EXACT, atol=EXACT
        )
    gradients, others = first_layer_gradients(arch, params), first_layer_gradients(arch, scaled)
    factors = np.concatenate([np.repeat(c, D), c])
    np.testing.assert_allclose(others * factors, gradients, rtol=EXACT, atol=EXACT)
    # So the gradient is orthogonal to each neuron's own weights (Euler).
    own = np.zeros((WIDTH, len(factors)))
    for j in range(WIDTH):
        own[j, j * D : (j + 1) * D] = params["W1"][j]
        own[j, WIDTH * D + j] = params["b1"][j]
    assert np.abs(gradients @ own.T).max() < EXACT


def test_sim_bn_takes_its_statistics_from_the_training_set_alone():
    """One test point at a time gives what all of them together give."""
    arch = TwoLayer(width=WIDTH, norm="batch")
    params = random_params(arch)
    together = outputs(arch, params, DATA.x_test)
    single = np.concatenate([outputs(arch, params, x[None]) for x in DATA.x_test])
    np.testing.assert_allclose(single, together, rtol=1e-12)


def test_a_neuron_dead_on_the_training_set_is_zero_in_sim_bn():
    """0/0 by the letter: here it outputs zero, also where it is active, and has no gradient."""
    arch = TwoLayer(width=WIDTH, norm="batch")
    params = random_params(arch)
    params["W1"][2], params["b1"][2] = np.eye(D)[0], -DATA.x_train[:, 0].max()
    x = np.vstack([DATA.x_test, 100 * np.eye(D)[:1]])
    f = outputs(arch, params, x)
    without = {name: np.delete(value, 2, axis=0) for name, value in params.items()}
    np.testing.assert_allclose(f, outputs(TwoLayer(width=WIDTH - 1, norm="batch"), without, x))
    net = build(arch, params, DATA.x_train)
    net(torch.tensor(x)).sum().backward()
    for name, p in net.named_parameters():
        assert torch.isfinite(p.grad).all(), name
        assert not p.grad[2].any(), name


# wen2023.arch.simln


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_sim_ln_divides_by_the_norm_outside_its_ball(activation):
    arch = TwoLayer(width=WIDTH, norm="layer", activation=activation)
    params = random_params(arch)
    u = ACTIVATIONS[activation](DATA.x_train @ params["W1"].T + params["b1"])
    assert np.linalg.norm(u, axis=1).min() > 10 * arch.ln_epsilon
    expected = u @ params["W2"] / np.linalg.norm(u, axis=1)
    np.testing.assert_allclose(outputs(arch, params), expected, rtol=1e-12, atol=1e-14)
    J = oracle.jacobian(arch, params, DATA)[:, oracle.columns_of(params, "W2")]
    np.testing.assert_allclose(np.linalg.norm(J, axis=1), 1, rtol=EXACT)


def test_sim_ln_does_not_see_a_common_scale():
    """For homogeneous σ, f is invariant under (W1, b1) → c (W1, b1), its gradient goes as 1/c."""
    arch = TwoLayer(width=WIDTH, norm="layer")
    params = random_params(arch)
    for c in (0.1, 7.0):
        scaled = {**params, "W1": c * params["W1"], "b1": c * params["b1"]}
        np.testing.assert_allclose(outputs(arch, scaled), outputs(arch, params), rtol=EXACT)
        np.testing.assert_allclose(
            c * first_layer_gradients(arch, scaled),
            first_layer_gradients(arch, params),
            rtol=EXACT,
            atol=EXACT,
        )


def test_sim_ln_is_linear_inside_its_ball():
    arch = TwoLayer(width=WIDTH, norm="layer", ln_epsilon=1e3)
    params = random_params(arch)
    plain = outputs(TwoLayer(width=WIDTH), params)
    np.testing.assert_allclose(outputs(arch, params), plain / 1e3, rtol=1e-12)


# Starting weights


@pytest.mark.parametrize("arch", [TwoLayer(width=400), Deep(depth=4, width=120)], ids=repr)
def test_the_torch_law_is_uniform_within_one_over_root_fan_in(arch):
    d = 30
    for name, value in arch.initial(d, seed=1).items():
        fan_in = d if name in ("W1", "b1") else value.shape[-1]
        scaled = value.ravel() * np.sqrt(fan_in)
        assert np.abs(scaled).max() <= 1
        # The largest of N uniforms falls short by more than 12/N with probability e^{-12}.
        assert np.abs(scaled).max() > 1 - 12 / scaled.size
        # The standard error of mean(u²), u uniform on ±1, is √(4/45)/√N about 1/3; five of them.
        assert abs((scaled**2).mean() - 1 / 3) < 5 * np.sqrt(4 / 45 / scaled.size), name
        assert abs(scaled.mean()) < 5 / np.sqrt(3 * scaled.size), name


@pytest.mark.parametrize("arch", [TwoLayer(width=400), Deep(depth=4, width=120)], ids=repr)
def test_the_normal_law_has_variance_one_over_fan_in_and_no_bias(arch):
    d = 30
    arch = type(arch)(width=arch.width, init=Init(law="normal"))
    params = arch.initial(d, seed=1)
    assert not params.pop("b1").any()
    for name, value in params.items():
        fan_in = d if name == "W1" else value.shape[-1]
        scaled = value.ravel() * np.sqrt(fan_in)
        # mean(z²) has standard error √(2/N) about 1; five of them.
        assert abs((scaled**2).mean() - 1) < 5 * np.sqrt(2 / scaled.size), name
        assert np.abs(scaled).max() > 2  # not the uniform law of that variance, which ends at 1.73


@pytest.mark.parametrize("law", ["torch", "normal"])
def test_scales_of_the_start(law):
    plain = TwoLayer(width=25, norm="batch", init=Init(law=law)).initial(D, seed=2)
    init = Init(law=law, first_layer_scale=3.0, gamma_scale=2.0)
    scaled = TwoLayer(width=25, norm="batch", init=init).initial(D, seed=2)
    assert (scaled["W1"] == 3 * plain["W1"]).all()
    assert (scaled["b1"] == 3 * plain["b1"]).all()
    assert (scaled["W2"] == plain["W2"]).all()
    assert (plain["gamma"] == 4 / 5).all()  # gamma_scale/√width
    assert (scaled["gamma"] == 2 / 5).all()


def test_the_start_depends_on_the_seed_alone():
    arch = TwoLayer(width=25)
    one, two, other = (arch.initial(D, seed=s) for s in (1, 1, 2))
    for name in one:
        assert one[name].dtype == np.float64
        assert (one[name] == two[name]).all()
        assert (one[name] != other[name]).any()
    normed = TwoLayer(width=25, norm="layer", activation="tanh").initial(D, seed=1)
    assert all((normed[name] == one[name]).all() for name in one)
    assert len(np.unique(one["W1"])) == one["W1"].size  # no draw is used twice
    assert not np.isin(one["W2"] * np.sqrt(25), one["W1"] * np.sqrt(D)).any()


def test_shapes():
    assert TwoLayer(width=4, norm="batch").shapes(3) == {
        "W1": (4, 3),
        "b1": (4,),
        "W2": (4,),
        "gamma": (4,),
    }
    assert list(TwoLayer(width=4, bias=False).shapes(3)) == ["W1", "W2"]
    assert Deep(depth=4, width=2, bias_first=False).shapes(3) == {
        "W1": (2, 3),
        "W2": (2, 2),
        "W3": (2, 2),
        "W4": (2,),
    }


def test_a_module_has_the_dtype_of_its_parameters():
    for dtype in (np.float32, np.float64):
        for arch in (TwoLayer(width=WIDTH, norm="batch"), Deep(width=WIDTH)):
            params = {k: p.astype(dtype) for k, p in random_params(arch).items()}
            net = build(arch, params, DATA.x_train)
            x = torch.tensor(DATA.x_test.astype(dtype))
            assert net(x).dtype == x.dtype
            assert {k: p.shape for k, p in net.named_parameters()} == arch.shapes(D)


def test_a_module_owns_its_parameters():
    """Training it must not write into the arrays it was built from."""
    arch = TwoLayer(width=WIDTH)
    params = random_params(arch)
    kept = {name: value.copy() for name, value in params.items()}
    net = build(arch, params, DATA.x_train)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(2)
    assert all((params[name] == kept[name]).all() for name in params)


def test_a_module_takes_part_in_functional_calls():
    """What every measure by torch.func needs: parameters given from outside are used."""
    for arch in (TwoLayer(width=WIDTH, norm="batch"), Deep(width=WIDTH)):
        params, others = random_params(arch, 0), random_params(arch, 1)
        net = build(arch, params, DATA.x_train)
        named = {name: torch.tensor(value) for name, value in others.items()}
        f = torch.func.functional_call(net, named, (torch.tensor(DATA.x_test),))
        expected = build(arch, others, DATA.x_train)(torch.tensor(DATA.x_test))
        assert torch.equal(f, expected)


def test_parameters_that_do_not_fit_are_refused():
    arch = TwoLayer(width=WIDTH)
    params = random_params(arch)
    with pytest.raises(UserError, match=r"parameters do not fit .*W1 is .*, not \(9, 5\)"):
        build(arch, {**params, "W1": np.ones((WIDTH, D + 1))}, DATA.x_train)
    with pytest.raises(UserError, match="parameters do not fit"):
        build(TwoLayer(width=WIDTH, norm="batch"), params, DATA.x_train)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((3, {}, np.ones((2, 2))), "arch must be a TwoLayer or Deep, got 3"),
        ((TwoLayer(width=3), None, np.ones((2, 2))), "params must be arrays by name"),
        ((TwoLayer(width=3), {"W1": 3}, np.ones((2, 2))), "params must be arrays by name"),
        ((TwoLayer(width=3), {}, np.ones(2)), r"x_train must be numbers of shape \(n, d\)"),
    ],
)
def test_what_a_network_is_built_from(given, says):
    with pytest.raises(UserError, match=says):
        build(*given)
