"""The network and the images that measuring is timed on: VGG11 with a quarter of the channels.

No BatchNorm; weights are initial ones from a seed, not trained, so that a run needs nothing but
this file: He's, whose signal keeps its size through the layers, and PyTorch's default ones, whose
signal fades. How long a measure takes, and even more a rival's, depends on them: both are shown.
The images are CIFAR-10's, equally many of each class, if the variable FLATLAB_DATA is set
(`flatlab.data.images`), and seeded noise of the same mean and deviation otherwise.
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
            else:  # torch's own: uniform within 1/√fan, both
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
