"""SAM as a torch optimizer: groups, weight decay, and the edges."""

from __future__ import annotations

import gc
import math
import weakref

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


def test_no_gradient_at_all_is_an_error():
    """A closure that forgot backward would else train nothing, and nobody would know."""
    w = parameter(3.0)
    optimizer = SAM([w], lr=0.1, rho=1.0, weight_decay=0.5)
    with pytest.raises(UserError, match=r"no parameter has a gradient: call loss\.backward"):
        optimizer.step(lambda: (w**2).sum())
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


def test_a_base_with_a_rho_of_its_own_is_refused():
    with pytest.raises(UserError, match="Adadelta has an option 'rho' of its own"):
        SAM([parameter(1.0)], torch.optim.Adadelta)


def test_a_base_is_given_once():
    sgd = torch.optim.SGD([parameter(1.0)], lr=0.1)
    with pytest.raises(UserError, match="has its options already: drop base, lr"):
        SAM(sgd, torch.optim.SGD, lr=0.1)
    with pytest.raises(UserError, match="base must be a class"):
        SAM([parameter(1.0)], sgd)


def test_a_sparse_gradient_is_refused():
    table = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = SAM(table.parameters(), lr=0.1)
    with pytest.raises(UserError, match="needs dense gradients, got a sparse one"):
        optimizer.step(lambda: table(torch.tensor([1])).sum().backward())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_sixteen_bits(dtype):
    """The norm, 80000, is beyond float16: computed in float32. The climb is 1 in each of 4."""
    w = torch.zeros(4, dtype=dtype, requires_grad=True)
    optimizer = SAM([w], lr=0.1, rho=2.0)
    w.grad = torch.full((4,), 40000.0, dtype=dtype)
    optimizer.first_step()
    # bfloat16 has eight bits: one part in 256 of the product.
    assert w.tolist() == pytest.approx([1.0] * 4, rel=1 / 256)


def test_nothing_stays_behind_a_step():
    """No reference cycle, no graph and no gradient is kept: memory does not grow with steps."""
    w = parameter(*range(1000))
    optimizer = SAM([w], lr=0.0, rho=0.1)
    seen = []

    def closure():
        loss = (w**2).sum()
        loss.backward()
        seen.append(weakref.ref(w.grad))
        return loss.detach()

    gc.disable()
    try:
        for _ in range(3):
            optimizer.step(closure)
        optimizer.zero_grad()
        assert [ref() for ref in seen] == [None] * 6
    finally:
        gc.enable()


def test_schedulers_of_the_two_call_form_see_the_step():
    """Torch warns of a scheduler's step that comes before the optimizer's; here none does."""
    w = parameter(3.0)
    optimizer = SAM([w], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        (w**2).sum().backward()
        optimizer.first_step()
        (w**2).sum().backward()
        optimizer.second_step()
        scheduler.step()
    assert optimizer.base.param_groups[0]["lr"] == pytest.approx(0.025)
