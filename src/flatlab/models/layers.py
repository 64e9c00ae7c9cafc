"""What the torch architectures share: initial laws, activations, layers, from a seed."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from ..randomness import generator

Law = Literal["torch", "lecun", "he", "fan_out"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "softplus": nn.Softplus,
    "identity": nn.Identity,
}


class OneOutput(nn.Module):
    """Drops the last axis, so that one output for each example has the shape (examples,)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x without its last axis, which has one entry."""
        return x.squeeze(-1)


def head(inputs: int, outputs: int) -> list[nn.Module]:
    """Return the last linear layer."""
    last = nn.Linear(inputs, outputs, dtype=torch.float64)
    return [last, OneOutput()] if outputs == 1 else [last]


def drawn(net: nn.Sequential, law: Law, seed: int) -> nn.Sequential:
    """Draw the weights and biases of all linear and convolutional layers.

    "torch" draws both from U(−1/√fan_in, 1/√fan_in), as PyTorch does by default. "lecun" draws
    weights from N(0, 1/fan_in), "he" from N(0, 2/fan_in), and sets biases to zero. "fan_out" draws
    convolutions from N(0, 2/(k²·out)) with zero biases and linear layers as "torch" does.
    """
    layers = [m for m in net.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    for index, layer in enumerate(layers):
        rng, shape = generator(seed, "init", index), layer.weight.shape
        fan_in = math.prod(shape[1:])
        fan_out = math.prod(shape) // shape[1]
        convolution = isinstance(layer, nn.Conv2d)
        if law == "torch" or (law == "fan_out" and not convolution):
            weight, bias = rng.uniform(-1, 1, shape), rng.uniform(-1, 1, shape[:1])
            scale = 1 / math.sqrt(fan_in)
        else:
            weight, bias = rng.normal(size=shape), rng.normal(size=shape[:1]) * 0
            variance = {"lecun": 1 / fan_in, "he": 2 / fan_in, "fan_out": 2 / fan_out}[law]
            scale = math.sqrt(variance)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight * scale))
            if layer.bias is not None:
                layer.bias.copy_(torch.from_numpy(bias * scale))
    return net
