"""The second-moment operator against the whole matrix on pairs of coordinates, and its bounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from flatlab.errors import UserError
from flatlab.measures import Budget, Effort, second_moment
from flatlab.measures.measuring import measure
from flatlab.measures.second_moment import LinearisedSGD, batch_noise, symmetric
from flatlab.measures.second_moment_radius import SecondMomentRadius
from flatlab.problem import Problem


def systems():
    """Yield the examples' Hessians and the rows they come from, of every shape."""
    rng = np.random.default_rng(5)
    for n, c, p in ((1, 1, 2), (3, 1, 2), (6, 1, 4), (4, 2, 3), (3, 2, 9), (9, 1, 8)):
        rows = rng.normal(size=(n, c, p)) * np.exp(rng.normal(size=(n, 1, 1)))
        yield rows, [r.T @ r for r in rows]


def batches(n, B, replacement):
    if replacement:
        return itertools.product(range(n), repeat=B)
    return itertools.combinations(range(n), B)


def dense(hessians, lr, B, replacement):
    """E (I − ηH_B) ⊗ (I − ηH_B), by going through all batches."""
    unit = np.eye(len(hessians[0]))
    steps = [
        unit - lr * np.mean([hessians[i] for i in batch], 0)
        for batch in batches(len(hessians), B, replacement)
    ]
    return np.mean([np.kron(M, M) for M in steps], 0)


@pytest.mark.parametrize("replacement", [False, True])
def test_a_step_is_the_mean_over_all_batches(replacement):
    rng = np.random.default_rng(6)
    for rows, hessians in systems():
        sgd, n, p = LinearisedSGD.of_rows(rows), len(rows), rows.shape[2]
        C = rng.normal(size=(sgd.rank, 3))
        C = C @ C.T
        for B in {1, min(2, n), min(3, n)}:
            whole = dense(hessians, 0.3, B, replacement)
            lifted = sgd.basis.T @ C @ sgd.basis
            expected = sgd.basis @ (whole @ lifted.ravel()).reshape(p, p) @ sgd.basis.T
            found = sgd.step(C, 0.3, batch_noise(B, n, replacement))
            np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize("replacement", [False, True])
def test_the_bounds_hold_the_largest_eigenvalue(replacement):
    """On the span; whole eigenvalues of exactly 1 belong to directions that never move."""
    for rows, hessians in systems():
        sgd = LinearisedSGD.of_rows(rows)
        inside = [sgd.basis @ H @ sgd.basis.T for H in hessians]
        for B, lr in itertools.product({1, min(2, len(rows)), min(3, len(rows))}, (0.05, 0.3, 2)):
            top = np.linalg.eigvalsh(dense(inside, lr, B, replacement))[-1]
            found = sgd.radius(lr, B, replacement, tolerance=1e-5)
            assert found.complete
            assert found.low <= top * (1 + 1e-10) and top <= found.high * (1 + 1e-10)
            assert found.high <= found.low * (1 + 1.001e-5)


def test_at_the_critical_learning_rate_the_radius_is_one():
    for rows, _ in systems():
        sgd = LinearisedSGD.of_rows(rows)
        for B, replacement in ((1, False), (min(2, len(rows)), True)):
            critical = sgd.critical_lr(B, replacement, tolerance=1e-8)
            assert critical.low <= critical.high <= critical.low * (1 + 1e-7)
            assert sgd.radius(0.999 * critical.low, B, replacement).low < 1
            assert sgd.radius(1.001 * critical.high, B, replacement).low > 1


def test_full_batch_is_gradient_descent():
    """ρ = max (1 − ηλ)², η* = 2/λ_max."""
    sgd = LinearisedSGD.of_hessians([np.diag([1.0, 4.0]), np.diag([3.0, 0.0])])
    assert sgd.curvatures == pytest.approx([2, 2])
    assert sgd.critical_lr(2).middle == pytest.approx(1.0, rel=1e-5)
    assert sgd.radius(1.2, 2).middle == pytest.approx(1.4**2, rel=1e-5)


def test_one_dimension_is_the_formula_of_the_mean_and_the_variance():
    a = np.array([0.5, 1.0, 4.0])
    sgd = LinearisedSGD.of_rows(np.sqrt(a)[:, None])
    for B, noise in ((1, 1.0), (2, 0.25), (3, 0.0)):
        expected = (1 - 0.3 * a.mean()) ** 2 + 0.09 * noise * a.var()
        assert sgd.radius(0.3, B).middle == pytest.approx(expected, rel=1e-5)
        critical = 2 * a.mean() / (a.mean() ** 2 + noise * a.var())
        assert sgd.critical_lr(B).middle == pytest.approx(critical, rel=1e-5)


def test_few_products_leave_a_wide_but_true_interval():
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(20, 1, 20))
    sgd = LinearisedSGD.of_rows(rows)
    critical = sgd.critical_lr(1)
    for lr in (0.9 * critical.low, 1.5 * critical.high):
        top = np.linalg.eigvalsh(dense([sgd.basis @ r.T @ r @ sgd.basis.T for r in rows], lr, 1, 0))
        found = sgd.radius(lr, 1, tolerance=1e-9, limit=2)
        assert not found.complete and found.products == 2
        assert found.low <= top[-1] <= found.high < np.inf


def test_negative_curvature_has_no_critical_learning_rate():
    sgd = LinearisedSGD.of_hessians([np.diag([1.0, -1.0])])
    assert sgd.critical_lr(1).high == 0.0
    assert sgd.radius(0.5, 1).middle == pytest.approx(1.5**2, rel=1e-5)


def test_an_operator_that_is_zero():
    """With ηH = I one step ends at the minimum."""
    found = LinearisedSGD.of_rows([[1.0]]).radius(1.0, 1)
    assert found.low == 0.0 and found.high < 1e-12


def test_bad_input_is_one_line():
    sgd = LinearisedSGD.of_rows([[1.0, 0.0], [1.0, 1.0]])
    for lr in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(UserError, match="lr must be > 0, got"):
            sgd.radius(lr, 1)
    with pytest.raises(UserError, match=r"batch_size must be >= 1, got 0"):
        sgd.radius(0.1, 0)
    with pytest.raises(UserError, match=r"batch_size must be <= n = 2, got 3"):
        sgd.critical_lr(3)
    with pytest.raises(UserError, match=r"H_1 must be symmetric"):
        LinearisedSGD.of_hessians([np.eye(2), np.array([[1.0, 1.0], [0.0, 1.0]])])
    with pytest.raises(UserError, match=r"H_0 must be finite, got 1 entries"):
        LinearisedSGD.of_hessians([np.diag([1.0, np.nan])])
    with pytest.raises(UserError, match=r"square matrix, got shape \(2, 3\)"):
        symmetric("H", np.ones((2, 3)))
    with pytest.raises(UserError, match="rows must be finite"):
        LinearisedSGD.of_rows([[np.inf]])


def _network(outputs=1):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, outputs)).double()
        return model, torch.randn(7, 3, dtype=torch.float64)


def test_at_a_fit_it_is_the_operator_of_the_examples_hessians():
    """At an interpolating minimum G_i = ∇²ℓ_i, so the Hessians by autograd give the same."""
    model, x = _network()
    y = model(x).detach()
    params = dict(model.named_parameters())
    sizes = [p.numel() for p in params.values()]

    def loss(theta, i):
        parts = zip(params.items(), theta.split(sizes), strict=True)
        given = {name: part.view_as(p) for (name, p), part in parts}
        out = torch.func.functional_call(model, given, (x[i : i + 1],))
        return (out - y[i : i + 1]).square().mean()

    theta = torch.cat([p.detach().flatten() for p in params.values()])
    whole = torch.autograd.functional.hessian  # forward mode would warn
    hessians = [whole(lambda theta, i=i: loss(theta, i), theta).numpy() for i in range(len(x))]
    by_hand = LinearisedSGD.of_hessians(hessians)
    found = SecondMomentRadius(lr=0.3, batch_size=2).read(
        Problem(model, nn.MSELoss(), (x, y)), Effort(0)
    )
    assert found.details["gradient_rms"] < 1e-12
    assert found.details["rank"] == by_hand.rank == 7
    top = by_hand.radius(0.3, 2, tolerance=1e-8).middle
    assert abs(found.value - top) <= found.stderr
    assert found.stderr <= 1e-3 * top
    critical = by_hand.critical_lr(2).middle
    assert found.details["critical_lr_low"] <= critical * (1 + 1e-6)
    assert critical <= found.details["critical_lr_high"] * (1 + 1e-6)


def test_the_data_may_come_in_batches_of_any_size():
    model, x = _network(outputs=3)
    y = torch.arange(7) % 3
    values = [
        measure(
            model, nn.CrossEntropyLoss(), (x, y), "second_moment_radius:lr=1.0,tolerance=1e-6",
            batch_size=size, progress=False,
        )["second_moment_radius:lr=1.0,tolerance=1e-6"].value
        for size in (2, 3, 7)
    ]  # fmt: skip
    assert values == pytest.approx([values[0]] * 3, rel=1e-6)


def test_the_reading_says_how_far_the_point_is_from_a_minimum():
    model, x = _network()
    y = model(x).detach() + 1.0
    found = SecondMomentRadius().read(Problem(model, nn.MSELoss(), (x, y)), Effort(0))
    assert found.details["gradient_rms"] > 1.0
    assert "∇ℓ_i of size" in found.method


def test_a_budget_ends_it_with_true_bounds():
    model, x = _network()
    problem = Problem(model, nn.MSELoss(), (x, model(x).detach()))
    exact = SecondMomentRadius(tolerance=1e-8).read(problem, Effort(0))
    few = SecondMomentRadius(tolerance=1e-8).read(problem, Effort(0, Budget(products=5)))
    assert not few.complete
    assert few.details["low"] <= exact.value <= few.details["high"]
    assert few.stderr > exact.stderr


def test_bad_options_and_data():
    model, x = _network()
    problem = Problem(model, nn.MSELoss(), (x, model(x).detach()))
    with pytest.raises(UserError, match="batch_size must be <= n = 7, got 8"):
        SecondMomentRadius(batch_size=8).read(problem, Effort(0))
    with pytest.raises(UserError, match="lr must be > 0"):
        SecondMomentRadius(lr=0.0)
    with pytest.raises(UserError, match="batch_size must be > 0, got 0"):
        SecondMomentRadius(batch_size=0)
    flat = Problem(model, lambda f, y: f.mean(), (x, model(x).detach()))
    with pytest.raises(UserError, match=r"curvature|zero"):
        SecondMomentRadius().read(flat, Effort(0))


def test_a_certificate_needs_more_than_the_lower_bound(monkeypatch):
    """Without a proof the upper bound stays that of the identity."""
    monkeypatch.setattr(second_moment, "_proven", lambda *_: False)
    found = LinearisedSGD.of_rows([[1.0, 0.0], [1.0, 2.0]]).radius(0.9, 1)
    assert not found.complete and found.high > found.low
