"""Random small networks of every kind that people measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

Random = np.random.Generator

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "softplus": nn.Softplus,
    "silu": nn.SiLU,
    "elu": nn.ELU,
}
NORMS = ("batch", "layer", "group")


@dataclass(frozen=True)
class Network:
    """A network, the shape of one of its inputs, and a few words about it."""

    model: nn.Module
    shape: tuple[int, ...]
    words: str


def choice(random: Random, options: list[str] | tuple[str, ...]) -> str:
    """Return one of several words."""
    return str(options[int(random.integers(len(options)))])


def activation(random: Random) -> str:
    """Return the name of an activation; ReLU, which has its own routes, is the most frequent."""
    return "relu" if random.random() < 0.35 else choice(random, list(ACTIVATIONS))


def _norm(kind: str, channels: int, images: bool) -> list[nn.Module]:
    if kind == "batch":
        return [nn.BatchNorm2d(channels) if images else nn.BatchNorm1d(channels)]
    if kind == "group" or (kind == "layer" and images):  # one group is the LayerNorm of images
        groups = 2 if kind == "group" and channels % 2 == 0 else 1
        return [nn.GroupNorm(groups, channels)]
    return [nn.LayerNorm(channels)] if kind == "layer" else []


def _named(norm: str) -> str:
    return "" if norm == "none" else f" {norm}norm"


def mlp(random: Random, outputs: int, size: int, norm: str) -> Network:
    """Return linear layers with about `size` parameters."""
    depth, inputs = int(random.integers(1, 4)), int(random.integers(2, 11))
    name, bias = activation(random), bool(random.random() < 0.8)
    # depth − 1 square layers: width² (depth − 1) + width (inputs + outputs + depth) = size
    linear, square = inputs + outputs + depth * (1 if norm == "none" else 3), depth - 1
    root = np.sqrt(linear**2 + 4 * square * size)
    width = int(2 * size / (linear + root)) if square else size // linear
    width = max(4, 2 * (width // 2))
    layers: list[nn.Module] = []
    for fan in [inputs] + [width] * (depth - 1):
        layers += [nn.Linear(fan, width, bias=bias), *_norm(norm, width, False)]
        layers += [ACTIVATIONS[name]()]
    model = nn.Sequential(*layers, nn.Linear(width, outputs, bias=bias))
    return Network(model, (inputs,), f"mlp {depth}×{width} {name}{_named(norm)}")


def convolution(random: Random, outputs: int, size: int, norm: str) -> Network:
    """Return two convolutions and a linear layer on small images."""
    side, colours = int(random.integers(5, 8)), int(random.integers(1, 4))
    name = activation(random)
    pool = choice(random, ("max", "average", "none"))
    first = max(2, 2 * (min(size, 480) // 120))
    second = first + 1
    pools: dict[str, list[nn.Module]] = {
        "max": [nn.MaxPool2d(2)],
        "average": [nn.AvgPool2d(2)],
        "none": [],
    }
    left = (side if pool == "none" else side // 2) - 1
    layers = [
        nn.Conv2d(colours, first, 3, padding=1), *_norm(norm, first, True), ACTIVATIONS[name](),
        *pools[pool], nn.Conv2d(first, second, 2), ACTIVATIONS[name](),
    ]  # fmt: skip
    if size < 300:
        layers += [nn.AdaptiveAvgPool2d(1)]
        left = 1
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(second * left**2, outputs))
    return Network(
        model, (colours, side, side), f"cnn {first}-{second} {name} pool={pool}{_named(norm)}"
    )


class Attention(nn.Module):
    """Self-attention over a few tokens, with a residual connection, and a linear head."""

    def __init__(self, width: int, heads: int, outputs: int, norm: bool):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.attention(x, x, x)[0]
        out: Tensor = self.head(self.norm(x + mixed).mean(1))
        return out


def attention(random: Random, outputs: int, size: int, norm: str) -> Network:
    """Return one layer of attention with about `size` parameters."""
    width = max(4, 2 * round(np.sqrt(size / 4) / 2))
    tokens = int(random.integers(2, 6))
    model = Attention(width, 2, outputs, norm == "layer")
    words = f"attention {tokens}×{width}{_named(norm) if norm == 'layer' else ''}"
    return Network(model, (tokens, width), words)


class Tied(nn.Module):
    """One weight matrix used twice, with a bias of its own each time."""

    def __init__(self, width: int, outputs: int, name: str):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.second.weight = self.first.weight
        self.act, self.head = ACTIVATIONS[name](), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.act(self.second(self.act(self.first(x)))))
        return out


def tied(random: Random, outputs: int, size: int, norm: str) -> Network:
    """Return a network with a tied weight and about `size` parameters."""
    name, width = activation(random), max(4, int(np.sqrt(size)) - 2)
    return Network(Tied(width, outputs, name), (width,), f"tied {width} {name}")


FAMILIES: dict[str, Callable[[Random, int, int, str], Network]] = {
    "mlp": mlp,
    "convolution": convolution,
    "attention": attention,
    "tied": tied,
}


def wide(random: Random, outputs: int, family: str, name: str) -> Network:
    """Return an "mlp" or a "cnn" with 40,000 parameters or more."""
    act = ACTIVATIONS[name]
    if family == "mlp":
        inputs, width = int(random.integers(10, 40)), int(random.integers(200, 240))
        model = nn.Sequential(
            nn.Linear(inputs, width), act(), nn.Linear(width, width), act(),
            nn.Linear(width, outputs),
        )  # fmt: skip
        return Network(model, (inputs,), f"mlp 2×{width} {name}")
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), act(), nn.AvgPool2d(2), nn.Conv2d(8, 48, 3), act(),
        nn.Flatten(), nn.Linear(192, 190), act(), nn.Linear(190, outputs),
    )  # fmt: skip
    return Network(model, (1, 8, 8), f"cnn 8-48 {name}")
