"""The family on small problems: how each member of the catalogue is made and takes a step.

A new member that is an `AscentOptimizer` needs nothing here.
"""

from __future__ import annotations

import torch
from torch import nn

from flatlab.optim import MSAM, OPTIMIZERS, AscentOptimizer, LabelNoiseSGD

NAMES = sorted(OPTIMIZERS)
ASCENTS = [name for name in NAMES if issubclass(OPTIMIZERS[name], AscentOptimizer)]
BASES = {
    "sgd": (torch.optim.SGD, {"lr": 0.05, "weight_decay": 0.01}),
    "momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
}


def generator(seed):
    return torch.Generator().manual_seed(seed)


def network(seed=0, dtype=torch.float64):
    """Return a tanh network 3-4-2, started from a seed of its own."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(dtype)
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.copy_(torch.randn(p.shape, generator=generator(100 * seed + k)))
    return model


def noisy_network():
    """Return a network with BatchNorm and dropout, in training mode."""
    model = nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2)
    )
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.copy_(torch.randn(p.shape, generator=generator(k)))
    return model.double()


def batches(count, n=6, dtype=torch.float64):
    """Return so many different batches (x, y)."""
    g = generator(7)
    return [
        (torch.randn(n, 3, generator=g).to(dtype), torch.randn(n, 2, generator=g).to(dtype))
        for _ in range(count)
    ]


def mse(output, target):
    return ((output - target) ** 2).mean()


def closure_of(model, loss, x, y):
    """Return the closure that a user writes, counting its calls."""

    def closure(labels=None):
        closure.calls += 1
        value = loss(model(x), y if labels is None else labels)
        value.backward()
        return value

    closure.calls = 0
    return closure


def make(name, model, strength, base, options, loss=mse):
    """Make a member of the family over a model, its rho (or noise) being `strength`."""
    kind = OPTIMIZERS[name]
    if issubclass(kind, AscentOptimizer):
        return kind(model.parameters(), base, rho=strength, **options)
    if kind is MSAM:
        return MSAM(model, loss, base, rho=strength, m=2, **options)
    assert kind is LabelNoiseSGD, f"say here how {name} is made"
    return LabelNoiseSGD(model.parameters(), strength, generator(5), base=base, **options)


def take_step(optimizer, model, x, y, loss=mse):
    """Take one step on a batch, whatever the member's way to be given it."""
    if isinstance(optimizer, MSAM):
        return optimizer.step(x, y)
    if isinstance(optimizer, LabelNoiseSGD):
        return optimizer.step(closure_of(model, loss, x, y), y)
    return optimizer.step(closure_of(model, loss, x, y))


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def same(one, two):
    """Bit by bit."""
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def furthest(one, two):
    return max(float((a - b).abs().max()) for a, b in zip(one, two, strict=True))
