"""A complex parameter trains like two real ones."""

from __future__ import annotations

import pytest
import torch
from optim_cases import ASCENTS, batches, closure_of, generator, make, mse, same, weights
from torch import nn

from flatlab.optim import ASAM, MSAM
from flatlab.optim import _foreach as foreach


class Waves(nn.Module):
    """Outputs |x W|² from complex weights, held as complex numbers or as pairs of real ones."""

    def __init__(self, pairs):
        super().__init__()
        start = 0.5 * torch.randn(3, 2, 2, dtype=torch.float64, generator=generator(0))
        self.weight = nn.Parameter(start if pairs else torch.view_as_complex(start))

    def forward(self, x):
        weight = self.weight if self.weight.is_complex() else torch.view_as_complex(self.weight)
        field = x.to(weight.dtype) @ weight
        return field.real**2 + 2 * field.imag**2


def real(model):
    (weight,) = weights(model)
    return torch.view_as_real(weight) if weight.is_complex() else weight


def apart(name, steps, **options):
    """Return how far the complex run is from the real one after some steps, and from its start."""
    ends = []
    for pairs in (False, True):
        model = Waves(pairs)
        rho = 0.01 if name == "usam" else 0.3  # USAM's climbs by rho‖g‖
        optimizer = make(name, model, rho, torch.optim.SGD, {"lr": 0.005, **options})
        for x, y in batches(steps):
            if isinstance(optimizer, MSAM):
                optimizer.step(x, y)
            else:
                optimizer.step(closure_of(model, mse, x, y))
        ends.append(real(model))
    return float((ends[0] - ends[1]).abs().max()), float((ends[0] - real(Waves(True))).abs().max())


# ASAM rescales a complex weight by its modulus, which two real weights do not have.
@pytest.mark.parametrize("name", [*(a for a in ASCENTS if a != "asam"), "msam"])
def test_it_is_the_run_of_two_real_parameters(name):
    """Seven steps with momentum, to 1e-12: the same sums in another order, of numbers near one."""
    difference, moved = apart(name, steps=7, momentum=0.9)
    assert difference < 1e-12
    assert moved > 1e-2


@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_m_sam_by_both_methods(method):
    difference, _ = apart("msam", steps=3, method=method)
    assert difference < 1e-12


def test_asam_rescales_by_the_modulus():
    """At w = 3 + 4i, L = |w|², eta = 0: g = 2w, T = 5, Tg/‖Tg‖ = w/5, e = rho T w/5 = rho w."""
    w = torch.tensor([3.0 + 4.0j], dtype=torch.complex128, requires_grad=True)
    ASAM([w], lr=0.1, rho=0.5, eta=0.0).step(lambda: w.abs().square().sum().backward())
    expected = (1 - 0.1 * 2 * 1.5) * (3 + 4j)
    assert abs(w.item() - expected) < 1e-14


def test_the_inner_product_belongs_to_the_norm():
    z = [torch.randn(5, dtype=torch.complex128, generator=generator(1)), torch.ones(2).double()]
    assert foreach.dot(z, z).item() == pytest.approx(foreach.norm(z).item() ** 2, rel=1e-14)
    turned = [1j * z[0]]
    assert abs(foreach.dot(z[:1], turned).item()) < 1e-14  # a quarter turn is orthogonal
    assert same([foreach.dot([z[0].conj()], [z[0].conj()])], [foreach.dot(z[:1], z[:1])])
