"""Small images and networks of every kind, and runs of them that tests stop and kill."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import flatlab as fl
from flatlab.models import CNN, MLP, VGG11, Module

N, SIDE, CLASSES = 48, 8, 3


def images(n=N, seed=0, classes=CLASSES):
    """Return noise images whose class is the channel with the largest mean."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n + 24, 3, SIDE, SIDE)).astype(np.float32)
    y = np.arange(n + 24) % classes
    x[np.arange(n + 24), y] += 0.5
    return fl.data.arrays(x[:n], y[:n], x[n:], y[n:], classes=classes)


def own(width=5, dropout=0.0):
    """Return a network of a user's own, with buffers."""
    layers = [nn.Flatten(), nn.Linear(3 * SIDE * SIDE, width), nn.BatchNorm1d(width), nn.ReLU()]
    layers += [nn.Dropout(dropout), nn.Linear(width, CLASSES)]
    return nn.Sequential(*layers)


def frozen():
    """Return a network without a parameter to train."""
    return own().requires_grad_(False)


class OnlyEvaluates(nn.Module):
    """A network that fails in training mode."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(3 * SIDE * SIDE, CLASSES)

    def forward(self, x):
        assert not self.training, "not for training"
        return self.last(x.flatten(1))


def only_evaluates():
    """Return a network that fails in training mode."""
    return OnlyEvaluates()


def lazy():
    """Return a network whose sizes are not known."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(CLASSES))


class Drawing(torch.nn.Module):
    """A network that draws random numbers in evaluation mode too."""

    def __init__(self):
        super().__init__()
        self.net = own()

    def forward(self, x):
        """Return outputs with noise."""
        f = self.net(x)
        return f + torch.randn_like(f)


def no_module():
    """Return something else."""
    return 3


def broken():
    """Raise."""
    raise RuntimeError("out of order")


class Wide(nn.Module):
    """A network with two outputs, and no class for the third label."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(3 * SIDE * SIDE, 2)

    def forward(self, x):
        return self.last(x.flatten(1))


def wide():
    """Return a network with too few outputs."""
    return Wide()


ARCHS = {
    "mlp": MLP(widths=(8, 8)),
    "dropout": MLP(widths=(16,), dropout=0.3),
    "cnn": CNN(channels=(4, 6)),
    "batch norm": CNN(channels=(4, 6), batch_norm=True),
    "vgg11": VGG11(channels=0.02, batch_norm=True),
    "own": Module("networks_for_tests:own", {"width": 6, "dropout": 0.2}),
}
PHASES = {
    "sgd": {"optimizer": "sgd"},
    "momentum": {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "adam": {"optimizer": "adam", "lr": 0.01},
    "sam": {"optimizer": "sam", "rho": 0.1, "momentum": 0.9},
    "sam on adam": {"optimizer": "sam", "rho": 0.1, "base": "adam", "lr": 0.01},
    "usam": {"optimizer": "usam", "rho": 0.1},
    "asam": {"optimizer": "asam", "rho": 0.5, "momentum": 0.5},
    "gsam": {"optimizer": "gsam", "rho": 0.1},
    "look_sam": {"optimizer": "look_sam", "rho": 0.1, "k": 3},
    "friendly_sam": {"optimizer": "friendly_sam", "rho": 0.1, "momentum": 0.9},
    "msam": {"optimizer": "msam", "rho": 0.1, "m": 4},
    "label noise": {"optimizer": "label_noise", "noise": 0.2, "noise_kind": "flip"},
}


def phase(name, epochs=4, batch_size=10, **changes):
    """Return a phase by name."""
    return fl.Phase(**{"lr": 0.05, "epochs": epochs, "batch_size": batch_size, **PHASES[name],
                       **changes})  # fmt: skip


def train(arch, algorithm, data=None, **options):
    """Train a small network on small images."""
    changes = {"loss": "cross_entropy", "seed": 5, "log": fl.LogGrid(per_decade=0, regular=2)}
    schedule = options.pop("schedule", None) or [phase(algorithm)]
    return fl.train(
        ARCHS[arch] if isinstance(arch, str) else arch,
        images() if data is None else data,
        schedule=schedule,
        **{**changes, **options},
    )


def outputs(model, x):
    """Return what a model says in evaluation mode."""
    with torch.no_grad():
        return model.eval()(torch.tensor(x))
