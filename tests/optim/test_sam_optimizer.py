"""SAM as a torch optimizer: by hand, against plain SGD, and at the edges."""

from __future__ import annotations

import math

import pytest
import torch

from flatlab.errors import UserError
from flatlab.optim import SAM


def parameter(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def stepper(optimizer, loss):
    """Return a closure as users write it, counting its calls."""

    def closure():
        closure.calls += 1
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    closure.calls = 0
    return closure


def test_a_step_of_two_parameters_by_hand():
    """L = u² + 2v at u = 3, v = 1 has g = (6, 2), ‖g‖ = √40 over both parameters together."""
    u, v = parameter(3.0), parameter(1.0)
    optimizer = SAM([u, v], lr=0.1, rho=0.5, weight_decay=0.01)
    closure = stepper(optimizer, lambda: (u**2 + 2 * v).sum())
    loss = optimizer.step(closure)
    assert closure.calls == 2
    assert loss.item() == 11  # at θ, before the step
    up = 3 + 0.5 * 6 / math.sqrt(40)
    # Weight decay at θ, the gradient 2·up and 2 at the ascended point.
    assert u.item() == pytest.approx(3 - 0.1 * (2 * up + 0.01 * 3), abs=1e-15)
    assert v.item() == pytest.approx(1 - 0.1 * (2 + 0.01 * 1), abs=1e-15)


def test_an_ascent_that_is_not_normalised_goes_rho_times_the_gradient():
    u = parameter(3.0)
    optimizer = SAM([u], lr=0.1, rho=0.5, normalised=False)
    optimizer.step(stepper(optimizer, lambda: (u**2).sum()))
    assert u.item() == pytest.approx(3 - 0.1 * 2 * (3 + 0.5 * 6), abs=1e-15)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.02])
def test_without_a_radius_it_is_sgd(decay, normalised):
    """Within 1e-15: θ(1 − ηλ) − ηg and θ − η(g + λθ) round differently, by an ulp or two."""
    x = torch.randn(8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    start = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ends = []
    for kind in ("sam", "sgd"):
        w = start.clone().requires_grad_()
        if kind == "sam":
            optimizer = SAM([w], lr=0.1, rho=0.0, weight_decay=decay, normalised=normalised)
        else:
            optimizer = torch.optim.SGD([w], lr=0.1, weight_decay=decay)
        closure = stepper(optimizer, lambda w=w: torch.tanh(x @ w).square().mean())
        optimizer.step(closure)
        ends.append(w.detach())
    assert (ends[0] - ends[1]).abs().max() <= 1e-15
    assert (ends[0] - start).abs().max() > 1e-3
    if decay == 0:
        assert torch.equal(*ends)


def test_a_zero_gradient_means_no_ascent():
    """No 0/0: at the minimum the parameter only decays."""
    w = parameter(2.0, -1.0)
    minimum = w.detach().clone()
    optimizer = SAM([w], lr=0.1, rho=0.5, weight_decay=0.1)
    optimizer.step(stepper(optimizer, lambda: ((w - minimum) ** 2).sum()))
    assert w.tolist() == pytest.approx([2 * 0.99, -0.99], abs=1e-15)


def test_a_tiny_gradient_is_still_normalised():
    """A +1e-12 in the norm, as others have it, would halve this ascent."""
    w = parameter(0.0)
    optimizer = SAM([w], lr=1.0, rho=0.5)
    optimizer.step(stepper(optimizer, lambda: (1e-12 * w + w**2).sum()))
    assert w.item() == pytest.approx(-1.0, rel=1e-9)  # −2 · 0.5


def test_a_parameter_without_gradient_is_left_alone():
    used, unused = parameter(3.0), parameter(7.0)
    optimizer = SAM([used, unused], lr=0.1, rho=1.0, weight_decay=0.5)
    optimizer.step(stepper(optimizer, lambda: (used**2).sum()))
    assert used.item() == pytest.approx(3 * 0.95 - 0.1 * 8, abs=1e-15)
    assert unused.item() == 7  # torch.optim.SGD does not decay it either


def test_no_gradient_at_all_is_no_step():
    w, other = parameter(3.0), parameter(1.0)
    optimizer = SAM([w], lr=0.1, rho=1.0, weight_decay=0.5)
    loss = optimizer.step(stepper(optimizer, lambda: (other**2).sum()))
    assert loss.item() == 1
    assert w.item() == 3


def test_groups_have_their_own_lr_rho_and_decay():
    u, v = parameter(3.0), parameter(4.0)
    groups = [{"params": [u]}, {"params": [v], "lr": 0.2, "rho": 0.0, "weight_decay": 0.5}]
    optimizer = SAM(groups, lr=0.1, rho=1.0)
    optimizer.step(stepper(optimizer, lambda: (u**2 + v**2).sum()))
    # g = (6, 8), ‖g‖ = 10: u ascends by 0.6, v not at all.
    assert u.item() == pytest.approx(3 - 0.1 * 2 * 3.6, abs=1e-15)
    assert v.item() == pytest.approx(4 - 0.2 * (8 + 0.5 * 4), abs=1e-15)


def test_the_point_of_ascent_leaves_no_trace():
    """Bit by bit: with lr = 0 the parameters are what they were."""
    w = parameter(0.1, 0.2, 0.3)
    before = w.detach().clone()
    optimizer = SAM([w], lr=0.0, rho=0.7)
    optimizer.step(stepper(optimizer, lambda: (w**3).sum()))
    assert torch.equal(w.detach(), before)
    assert optimizer.state_dict()["state"] == {}  # nothing to save but the groups


@pytest.mark.parametrize("name", ["lr", "rho", "weight_decay"])
def test_a_negative_option_is_refused(name):
    options = {"lr": 0.1, "rho": 0.1, name: -0.5}
    with pytest.raises(UserError, match=rf"{name} must be >= 0, got -0.5"):
        SAM([parameter(1.0)], **options)


def test_a_step_needs_a_closure():
    with pytest.raises(UserError, match="needs a closure that recomputes the loss"):
        SAM([parameter(1.0)], lr=0.1, rho=0.1).step()
