"""Losses: numpy and torch agree, derivatives are right, minima are where they should be."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from flatlab.errors import UserError
from flatlab.losses import LOSSES, Loss, as_loss

CASES = [
    Loss("mse"),
    Loss("logistic"),
    Loss("logistic", smoothing=0.0),
    Loss("logistic", smoothing=0.45),
    Loss("truncated_mse"),
    Loss("truncated_mse", cutoff=0.3),
    Loss("half_mse"),
]
# Outputs on both sides of every bend, none on one; labels ±1 and, where allowed, real.
F = np.concatenate([np.linspace(-6.03, 6.07, 97), [0.0, 40.0, -40.0]])
Y = np.resize([1.0, -1.0], len(F))


@pytest.mark.parametrize("loss", CASES, ids=str)
def test_torch_and_numpy_agree(loss):
    value = loss.values(F, Y)[0]
    mean = loss.torch(torch.tensor(F), torch.tensor(Y))
    assert mean.dtype == torch.float64
    assert value.mean() == pytest.approx(float(mean), rel=1e-14)  # a hundred float64 terms
    for k in range(len(F)):
        single = loss.torch(torch.tensor(F[k : k + 1]), torch.tensor(Y[k : k + 1]))
        assert value[k] == pytest.approx(float(single), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("loss", CASES, ids=str)
def test_derivatives_are_those_of_autograd(loss):
    f = torch.tensor(F, requires_grad=True)
    (first,) = torch.autograd.grad(loss.torch(f, torch.tensor(Y)) * len(F), f, create_graph=True)
    second = torch.zeros_like(f)
    if first.requires_grad:
        (second,) = torch.autograd.grad(first.sum(), f)
    _, d1, d2 = loss.values(F, Y)
    # Rounding only; sigmoid(40) − q cancels to about 1e-16 of 1.
    np.testing.assert_allclose(d1, first.detach().numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(d2, second.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", CASES, ids=str)
def test_derivatives_are_limits_of_differences(loss):
    """Autograd and the formula could share a mistake in the value's bend; differences do not."""
    h = 1e-5
    bend = getattr(loss, "cutoff", math.inf)
    near = np.abs(np.abs(F - Y) - bend) < 2 * h
    near |= np.abs(np.abs(F - Y) - 2 * bend) < 2 * h
    f, y = F[~near], Y[~near]
    up, middle, down = (loss.values(f + step, y) for step in (h, 0.0, -h))
    # Central differences: error h²ℓ'''/6 ≈ 1e-11, and rounding 1e-16 · |ℓ|/h with ℓ up to 2000.
    np.testing.assert_allclose((up[0] - down[0]) / (2 * h), middle[1], rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose((up[1] - down[1]) / (2 * h), middle[2], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("p", [0.01, 0.2, 0.45])
@pytest.mark.parametrize("y", [1.0, -1.0])
def test_logistic_has_its_minimum_on_the_side_of_its_label(p, y):
    """At y log((1 − p)/p): for p = 0.2 and y = 1 that is +1.386, where the printed one has −."""
    loss, label = Loss("logistic", smoothing=p), np.array([y])
    best = np.array([y * math.log((1 - p) / p)])
    value, slope, curve = loss.values(best, label)
    assert abs(slope[0]) < 1e-15
    # There the loss is the entropy of the smoothed label and the curvature its variance.
    assert value[0] == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p), rel=1e-14)
    assert curve[0] == pytest.approx(p * (1 - p), rel=1e-14)
    for step in (-0.1, 0.1):
        assert loss.values(best + step, label)[0][0] > value[0] + 0.4 * p * (1 - p) * 0.01


def test_logistic_does_not_overflow():
    f = np.array([-1e4, -800.0, 800.0, 1e4])
    value, slope, curve = Loss("logistic").values(f, np.ones(4))
    np.testing.assert_allclose(value, [8e3, 640.0, 160.0, 2e3], rtol=1e-15)
    np.testing.assert_allclose(slope, [-0.8, -0.8, 0.2, 0.2], rtol=1e-15)
    assert (curve >= 0).all() and (curve < 1e-300).all()


@pytest.mark.parametrize("c", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("sign", [1, -1])
def test_truncated_mse_bends_without_a_jump(c, sign):
    """ℓ(c) = c², ℓ'(c) = 2c; ℓ(2c) = 2c², ℓ'(2c) = 0; both from both sides, flat beyond."""
    loss = Loss("truncated_mse", cutoff=c)
    y = np.array([0.7])
    for e, value, slope in ((c, c**2, 2 * c), (2 * c, 2 * c**2, 0.0)):
        for nudge in (-1e-9, 0.0, 1e-9):
            got = loss.values(y + sign * (e + nudge), y)
            assert got[0][0] == pytest.approx(value, abs=1e-8 * (1 + c))  # slope · nudge
            assert got[1][0] == pytest.approx(sign * slope, abs=1e-8)  # curvature 2 · nudge
            torched = loss.torch(torch.tensor(y + sign * (e + nudge)), torch.tensor(y))
            assert got[0][0] == pytest.approx(float(torched), abs=1e-15)
    far = loss.values(y + sign * 50 * c, y)
    assert [part[0] for part in far] == [2 * c**2, 0.0, 0.0]
    middle = loss.values(y + sign * 1.5 * c, y)
    assert middle[0][0] == pytest.approx(1.75 * c**2, rel=1e-14)
    assert middle[2][0] == -2


def test_cross_entropy_is_that_of_the_smoothed_label():
    f, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 2, 1, 1, 0])
    q = torch.full((5, 3), 0.1 / 3, dtype=torch.float64)
    q[torch.arange(5), y] += 0.9
    by_hand = -(q * torch.log_softmax(f, 1)).sum(1).mean()
    assert float(Loss("cross_entropy", smoothing=0.1).torch(f, y)) == pytest.approx(float(by_hand))


def test_half_mse_sums_over_outputs_and_mse_averages():
    f, y = torch.zeros(4, 3, dtype=torch.float64), torch.ones(4, 3, dtype=torch.float64)
    assert float(Loss("half_mse").torch(f, y)) == 1.5
    assert float(Loss("mse").torch(f, y)) == 1.0


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_says_which_labels_it_takes(name):
    loss, numbers, classes = as_loss(name), np.array([1.0, -1.0]), np.array([0, 2])
    right, wrong = (None, 3), (3, None)
    if loss.labels == "classes":
        right, wrong = wrong, right
    given = {None: numbers, 3: classes}
    assert loss.refusal(given[right[0]], right[0]) is None
    assert "takes" in loss.refusal(given[wrong[0]], wrong[0])


def test_labels_zero_and_one_are_no_signs():
    """Labels between −1 and 1 are taken, and so is a set in which every label is 1."""
    logistic = Loss("logistic")
    for labels in ([0.0, 1.0, 1.0], [0.0, 0.0]):
        assert "use 2 * y - 1" in logistic.refusal(np.array(labels), None)
    for labels in ([1.0, 1.0], [-1.0, 1.0], [0.0, -1.0], [0.0, 0.5, 1.0]):
        assert logistic.refusal(np.array(labels), None) is None
    assert Loss("mse").refusal(np.array([0.0, 1.0]), None) is None


def test_labels_beyond_one_are_no_signs():
    assert "got 2" in Loss("logistic").refusal(np.array([2.0, -1.0]), None)


def test_mse_is_not_halved():
    value, slope, curve = Loss("mse").values(np.array([3.0]), np.array([1.0]))
    assert (value[0], slope[0], curve[0]) == (4, 4, 2)


def test_a_loss_by_name():
    assert as_loss("logistic") == Loss("logistic")
    assert as_loss(Loss("mse")) == Loss("mse")
    assert all(as_loss(name).name == name for name in LOSSES)
    with pytest.raises(UserError, match="unknown loss 'msee': did you mean 'mse'"):
        as_loss("msee")
    with pytest.raises(UserError, match="loss must be a name or a Loss, got None"):
        as_loss(None)
