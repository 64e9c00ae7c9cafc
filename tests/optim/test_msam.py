"""m-SAM: every group climbs by itself, together or one after the other."""

from __future__ import annotations

import pytest
import torch
from optim_cases import batches, closure_of, furthest, mse, network, same, weights
from torch import nn

from flatlab.errors import UserError
from flatlab.optim import MSAM, SAM

N = 7  # a prime: no m but 1 and 7 divides it


def by_hand(model, x, y, m, rho, lr):
    """The definition, a group at a time, by the plainest autograd."""
    params = list(model.parameters())
    total = [torch.zeros_like(p) for p in params]
    for first in range(0, len(x), m):
        xs, ys = x[first : first + m], y[first : first + m]
        start = weights(model)
        g = torch.autograd.grad(mse(model(xs), ys), params)
        norm = sum(float((t**2).sum()) for t in g) ** 0.5
        with torch.no_grad():
            for p, t in zip(params, g, strict=True):
                p += rho * t / norm
        g = torch.autograd.grad(mse(model(xs), ys), params)
        with torch.no_grad():
            for p, t, s, old in zip(params, g, total, start, strict=True):
                s += len(xs) / len(x) * t
                p.copy_(old)
    with torch.no_grad():
        for p, s in zip(params, total, strict=True):
            p -= lr * s


@pytest.mark.parametrize("m", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("way", ["vmap", "vmap in chunks of 2", "loop"])
def test_groups_of_m(way, m):
    """Five steps equal the loop by hand to 1e-13: sums of a few numbers of order one."""
    model, plain = network(), network()
    method, chunk = way.split()[0], 2 if "chunks" in way else None
    optimizer = MSAM(model, mse, lr=0.1, rho=0.3, m=m, method=method, chunk=chunk)
    for x, y in batches(5, n=N):
        optimizer.step(x, y)
        by_hand(plain, x, y, m, rho=0.3, lr=0.1)
    assert furthest(weights(model), weights(plain)) < 1e-13


def test_one_group_is_sam():
    model, plain = network(), network()
    optimizer = MSAM(model, mse, torch.optim.Adam, m=N, rho=0.3, lr=0.01)
    sam = SAM(plain.parameters(), torch.optim.Adam, rho=0.3, lr=0.01)
    for x, y in batches(5, n=N):
        optimizer.step(x, y)
        sam.step(closure_of(plain, mse, x, y))
    # Adam divides gradients by their size: rounding of 1e-16 over gradients down to 1e-3.
    assert furthest(weights(model), weights(plain)) < 1e-12


@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_a_zero_gradient_of_one_group(method):
    """The example (0, 0) has none: it climbs nowhere and adds nothing."""
    model = nn.Linear(2, 1, bias=False).double()
    nn.init.ones_(model.weight)
    optimizer = MSAM(model, mse, lr=0.1, rho=0.5, m=1, method=method)
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    optimizer.step(x, torch.zeros(2, 1, dtype=torch.float64))
    # (f − y)² of the second: g(1.5) = 3, halved by the mean.
    assert model.weight.tolist() == [[pytest.approx(0.85, abs=1e-15), 1.0]]


@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_groups_of_parameters_with_their_own_radius(method):
    """Rho = 0 in the second layer: the gradient there is taken after a climb of the first only."""
    model = network()
    groups = [
        {"params": list(model[0].parameters())},
        {"params": list(model[2].parameters()), "rho": 0.0, "lr": 0.0},
    ]
    optimizer = MSAM(model, mse, rho=0.3, m=N, lr=0.1, params=groups, method=method)
    plain = network()
    twin = [
        {"params": list(plain[0].parameters())},
        {"params": list(plain[2].parameters()), "rho": 0.0, "lr": 0.0},
    ]
    sam = SAM(twin, rho=0.3, lr=0.1)
    x, y = batches(1, n=N)[0]
    optimizer.step(x, y)
    sam.step(closure_of(plain, mse, x, y))
    assert furthest(weights(model), weights(plain)) < 1e-14
    assert same(weights(model[2]), weights(network()[2]))


def test_noise_and_batchnorm_go_through_the_loop():
    """Statistics are updated once a group, at θ; masks are the same in both passes of a group."""
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    masks = []
    model[2].register_forward_hook(lambda module, given, out: masks.append(out != 0))
    optimizer = MSAM(model, mse, lr=0.0, rho=0.3, m=3)
    x, y = batches(1, n=6, dtype=torch.float32)[0]
    with torch.random.fork_rng():
        optimizer.step(x, y)
    assert int(model[1].num_batches_tracked) == 2
    masks = masks[1:]  # the first batch is run once more, to compare losses
    assert len(masks) == 4
    assert torch.equal(masks[0], masks[1]) and torch.equal(masks[2], masks[3])


def test_gradient_may_be_clipped_before_the_step():
    model = network()
    optimizer = MSAM(model, mse, lr=1.0, rho=0.3)
    x, y = batches(1)[0]
    before = weights(model)
    optimizer.gradient(x, y)
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.base.step()
    moved = torch.cat([(a - b).flatten() for a, b in zip(before, weights(model), strict=True)])
    assert moved.norm().item() == pytest.approx(0.01, rel=1e-4)  # torch's 1e-6 in the norm


def test_a_layer_that_is_unfrozen_later_trains():
    model = network()
    model[2].requires_grad_(False)
    optimizer = MSAM(model, mse, lr=0.1, rho=0.3, params=model.parameters())
    x, y = batches(1)[0]
    optimizer.step(x, y)
    before = weights(model[2])
    model[2].requires_grad_(True)
    optimizer.step(x, y)
    assert not same(weights(model[2]), before)


def test_a_loss_that_fails_leaves_theta():
    model = network()
    before = weights(model)

    def loss(output, target):
        if not same(weights(model), before):
            raise ZeroDivisionError
        return mse(output, target)

    with pytest.raises(ZeroDivisionError):
        MSAM(model, loss, lr=0.1, rho=0.3, method="loop").step(*batches(1)[0])
    assert same(weights(model), before)


@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_bad_input(method):
    model, (x, y) = network(), batches(1)[0]
    with pytest.raises(UserError, match=r"must return a scalar, got shape \(6, 2\): take the mean"):
        MSAM(model, lambda f, t: (f - t) ** 2, lr=0.1, method=method).step(x, y)
    with pytest.raises(UserError, match="same number >= 1 of rows, got 6, 5"):
        MSAM(model, mse, lr=0.1, method=method).step(x, y[:5])
    with pytest.raises(UserError, match="rows, got 0, 0"):
        MSAM(model, mse, lr=0.1, method=method).step(x[:0], y[:0])
    with pytest.raises(UserError, match="not in the model"):
        MSAM(model, mse, lr=0.1, params=network().parameters()).step(x, y)


@pytest.mark.parametrize("options", [{"m": 0}, {"m": 1.5}, {"chunk": 0}, {"method": "map"}])
def test_bad_options(options):
    with pytest.raises(UserError, match=next(iter(options))):
        MSAM(network(), mse, lr=0.1, **options)
