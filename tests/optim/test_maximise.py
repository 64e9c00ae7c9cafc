"""With `maximize` the ascent goes down: SAM that maximises J equals SAM that minimises −J."""

from __future__ import annotations

import pytest
import torch
from optim_cases import ASCENTS, batches, make, mse, network, same, take_step, weights

from flatlab.optim import OPTIMIZERS, SAM


def parameter(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("name", ASCENTS)
def test_the_adversary_of_a_maximiser(name):
    """J = −(w − 3)² at w = 1 has the gradient 4; every first climb is by 0.5 away from 3.

    USAM's is rho times the gradient, ASAM's (eta = 0, T = 1 at w = 1) has the length of SAM's.
    """
    w = parameter(1.0)
    own = {"usam": {"rho": 0.125}, "asam": {"rho": 0.5, "eta": 0.0}}.get(name, {"rho": 0.5})
    optimizer = OPTIMIZERS[name]([w], lr=0.1, maximize=True, **own)
    seen = []

    def closure():
        seen.append(w.item())
        (-((w - 3) ** 2)).sum().backward()

    optimizer.step(closure)
    assert seen == pytest.approx([1.0, 0.5], abs=1e-15)
    assert w.item() == pytest.approx(1 + 0.1 * 5, abs=1e-12)  # J'(0.5) = 5; gsam's part is rounding


@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("name", [*ASCENTS, "msam"])
def test_maximising_is_minimising_the_negative(name, base):
    """Bit by bit over seven steps: a sign is exact in floating point."""
    ends = []
    for sign in (1, -1):

        def loss(output, target, sign=sign):
            return sign * mse(output, target)

        model = network()
        options = {"lr": 0.01, "weight_decay": 0.0, "maximize": sign < 0}
        optimizer = make(name, model, 0.3, base, options, loss=loss)
        for x, y in batches(7):
            take_step(optimizer, model, x, y, loss)
        ends.append(weights(model))
    assert same(*ends)


@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_m_sam_maximises_by_both_methods(method):
    """With f = w x, J = −(w − 3)² at x = 1: both examples climb to 0.5, where J' = 5."""
    model = torch.nn.Linear(1, 1, bias=False).double()
    torch.nn.init.ones_(model.weight)
    optimizer = OPTIMIZERS["msam"](
        model, lambda f, y: -mse(f, y), lr=0.1, rho=0.5, maximize=True, method=method
    )
    x = torch.ones(2, 1, dtype=torch.float64)
    optimizer.step(x, 3 * x)
    assert model.weight.item() == pytest.approx(1.5, abs=1e-15)


def test_one_group_minimises_and_one_maximises():
    """L = ½u² − ½v² at (3, 4): g = (3, −4), ‖g‖ = 5; the climbs are +0.3 and −0.1 · (−4) = +0.4.

    There g = (3.3, −4.4): u = 3 − 0.33, v = 4 − 0.44.
    """
    u, v = parameter(3.0), parameter(4.0)
    optimizer = SAM([{"params": [u]}, {"params": [v], "maximize": True}], lr=0.1, rho=0.5)
    optimizer.step(lambda: ((u**2 - v**2).sum() / 2).backward())
    assert (u.item(), v.item()) == pytest.approx((2.67, 3.56), abs=1e-14)
