"""A small convolutional network on Fashion-MNIST, trained for a few seconds and then measured.

    flatlab measure examples/cnn.py:make
    flatlab measure examples/cnn.py:make --measure all --budget 20

It reads 3,000 training images, 300 of each class, from the folder that FLATLAB_DATA names,
or from the cache, where `flatlab data get fashion_mnist` puts them.
"""

from __future__ import annotations

import torch
from torch import nn

import flatlab as fl


def make():
    """Return (model, loss, data): a network that SAM trained on 3,000 images, and 1,000 of them."""
    data = fl.data.images("fashion_mnist", n=3000, n_test=0)
    x, y = torch.tensor(data.x_train), torch.tensor(data.y_train)
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 49, 10),
        )  # fmt: skip
    loss = nn.CrossEntropyLoss()
    optimizer = fl.optim.SAM(model.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9)
    for _ in range(5):
        for batch in torch.randperm(len(x), generator=generator).split(100):

            def closure(batch=batch):
                optimizer.zero_grad()
                value = loss(model(x[batch]), y[batch])
                value.backward()
                return value

            optimizer.step(closure)
    return model, loss, (x[:1000], y[:1000])
