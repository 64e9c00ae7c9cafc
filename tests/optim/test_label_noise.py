"""Label noise: the laws it promises, drawn from the caller's generator and nowhere else."""

from __future__ import annotations

import pytest
import torch
from optim_cases import generator, network

from flatlab.errors import UserError
from flatlab.optim import LabelNoiseSGD

COUNT = 40_000


def noise(kind, strength, seed=0, **options):
    return LabelNoiseSGD(
        network().parameters(), strength, generator(seed), kind=kind, lr=0.1, **options
    )


def test_signs():
    """±0.3 exactly, and balanced: five standard errors of a fair coin are 5/√40000 = 0.025."""
    y = torch.zeros(COUNT, dtype=torch.float64)
    drawn = noise("sign", 0.3).perturb(y)
    assert drawn.unique().tolist() == [-0.3, 0.3]
    assert abs(drawn.mean().item()) / 0.3 < 0.025


def test_gaussian():
    """Mean within five standard errors 0.3/√40000, deviation within five of 0.3/√80000."""
    drawn = noise("gaussian", 0.3).perturb(torch.ones(COUNT, dtype=torch.float64))
    assert abs(drawn.mean().item() - 1) < 5 * 0.3 / COUNT**0.5
    assert abs(drawn.std().item() - 0.3) < 5 * 0.3 / (2 * COUNT) ** 0.5


def test_flips():
    """A fifth of the labels changes, and to each other class alike; dtype and shape stay."""
    y = torch.arange(4).repeat(COUNT // 4).reshape(2, -1)
    drawn = noise("flip", 0.2, classes=4).perturb(y)
    assert drawn.dtype == y.dtype and drawn.shape == y.shape
    moved = (drawn - y) % 4
    shares = [(moved == k).double().mean().item() for k in range(4)]
    # Five standard errors: 5 √(0.2 · 0.8/40000) = 0.01, 5 √(0.067 · 0.933/40000) = 0.0062.
    assert shares == [pytest.approx(0.8, abs=0.01)] + [pytest.approx(0.2 / 3, abs=0.0063)] * 3
    assert torch.equal(noise("flip", 1.0, classes=2).perturb(y % 2), 1 - y % 2)
    assert torch.equal(noise("flip", 0.0, classes=4).perturb(y), y)


@pytest.mark.parametrize("kind", ["sign", "gaussian", "flip"])
def test_only_the_given_generator_is_used(kind):
    y = torch.zeros(50, dtype=torch.int64 if kind == "flip" else torch.float32)
    options = {"classes": 5} if kind == "flip" else {}
    one, two, other = (noise(kind, 0.5, seed, **options) for seed in (1, 1, 2))
    state = torch.get_rng_state()
    first = one.perturb(y)
    assert torch.equal(first, two.perturb(y))
    assert not torch.equal(first, one.perturb(y))  # fresh in every step
    assert not torch.equal(first, other.perturb(y))
    assert torch.equal(torch.get_rng_state(), state)


def test_bad_input():
    with pytest.raises(UserError, match="unknown kind 'swap': allowed: flip, gaussian, sign"):
        noise("swap", 0.1)
    with pytest.raises(
        UserError, match="classes >= 2 and a probability noise <= 1, got classes=No"
    ):
        noise("flip", 0.1)
    with pytest.raises(UserError, match=r"noise=1\.5"):
        noise("flip", 1.5, classes=3)
    with pytest.raises(UserError, match=r"must be a torch\.Generator, got int"):
        LabelNoiseSGD(network().parameters(), 0.1, 0)
    with pytest.raises(UserError, match=r"needs integer labels, got torch\.float32"):
        noise("flip", 0.1, classes=3).perturb(torch.zeros(2))
    with pytest.raises(UserError, match=r"needs floating-point labels, got torch\.int64"):
        noise("sign", 0.1).perturb(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(UserError, match=r"labels must lie in 0\.\.2, got 0\.\.3"):
        noise("flip", 0.1, classes=3).perturb(torch.tensor([0, 3]))
    with pytest.raises(UserError, match="step needs a closure and the labels"):
        noise("sign", 0.1).step()
