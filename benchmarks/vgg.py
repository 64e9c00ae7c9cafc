"""The network and the images for timing measures: VGG11 with a quarter of the channels.

It has no BatchNorm. Its weights are initial weights from a seed, not trained, so a run needs only
this file. There are two kinds: He's, whose signal keeps its size through the layers, and PyTorch's
default, whose signal fades. The time of a measure depends on them, and a rival's time even more, so
both are shown. The images are from CIFAR-10, equally many of each class, if the variable
FLATLAB_DATA is set (`flatlab.data.images`), and otherwise seeded noise of the same mean and
deviation.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

from flatlab.data import images as cifar

LAYERS = (16, "M", 32, "M", 64, 64, "M", 128, 128, "M", 128, 128, "M")
CLASSES = 10
SEED = 0


WEIGHTS = ("He", "default")


def network(
    weights: str = "He", seed: int = SEED, dtype: torch.dtype = torch.float32
) -> nn.Sequential:
    """Return VGG11/4 at initial weights of a kind in `WEIGHTS`: 578,410 parameters.

    >>> sum(p.numel() for p in network().parameters())
    578410
    """
    layers: list[nn.Module] = []
    channels = 3
    for width in LAYERS:
        if isinstance(width, str):
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, CLASSES))
    draw = torch.Generator().manual_seed(seed)
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan = module.weight[0].numel()
            if weights == "He":
                nn.init.kaiming_normal_(module.weight, generator=draw)
                nn.init.zeros_(module.bias)
            else:  # torch's default: weights and bias uniform within 1/√fan
                for p in (module.weight, module.bias):
                    nn.init.uniform_(p, -(fan**-0.5), fan**-0.5, generator=draw)
    return net.to(dtype)


def images(n: int, seed: int = SEED) -> tuple[Tensor, Tensor, str]:
    """Return n ≥ 10 images with mean 0 and deviation 1, their labels, and the images' name."""
    if os.environ.get("FLATLAB_DATA"):
        data = cifar("cifar10", n, n_test=0)
        return torch.tensor(data.x_train), torch.tensor(data.y_train), "CIFAR-10"
    draw = torch.Generator().manual_seed(seed)
    noise = torch.randn(n, 3, 32, 32, generator=draw)
    return noise, torch.randint(CLASSES, (n,), generator=draw), "noise images"
