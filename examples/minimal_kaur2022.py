"""Flatter need not be better: Kaur, Cohen & Lipton (2022) in plain PyTorch.

    python examples/minimal_kaur2022.py

A small network learns the classes of a random teacher with plain SGD, at several learning rates η,
until its training accuracy is 99 %. λ_max is the largest eigenvalue of the Hessian of the training
loss, by power iteration on Hessian-vector products. With small and with full batches λ_max falls as
η grows; with full batches it cannot stay above 2/η. The test accuracy does not follow it.

     batch      η     2/η   λ_max  test accuracy  missed
        10   0.01   200.0    4.89          72.0%       0
        10   0.03    66.7    4.37          71.8%       0
        10    0.1    20.0    2.99          71.9%       0
       500    0.2    10.0    5.12          71.8%       0
       500    0.4     5.0    3.85          71.8%       0
       500    0.8     2.5    1.85          72.5%       0

Means over three seeds, in 9 seconds of processor time. `flatlab run kaur2022/fig1` takes images.
"""

import argparse

import torch
from torch import Tensor, nn


def labelled(n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return n points of R^d and their classes, of 10, by a random two-layer network."""
    teacher, draw = (torch.Generator().manual_seed(s) for s in (0, seed))
    first = torch.randn(d, 20, generator=teacher) / d**0.5
    second = torch.randn(20, 10, generator=teacher)
    x = torch.randn(n, d, generator=draw)
    return x, (torch.relu(x @ first) @ second).argmax(1)


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of points whose class is right."""
    with torch.no_grad():
        return float((net(x).argmax(1) == y).float().mean())


def lambda_max(net: nn.Module, x: Tensor, y: Tensor, steps: int = 100) -> float:
    """Return the eigenvalue of the Hessian that is largest in magnitude: here it is positive."""
    params = list(net.parameters())
    loss = nn.functional.cross_entropy(net(x), y)
    slopes = torch.autograd.grad(loss, params, create_graph=True)
    slope = torch.cat([part.flatten() for part in slopes])
    v = torch.randn(slope.numel(), generator=torch.Generator().manual_seed(1))
    value = 0.0
    for _ in range(steps):
        v = v / v.norm()
        product = torch.autograd.grad(slope @ v, params, retain_graph=True)
        product = torch.cat([part.flatten() for part in product])
        value, v = float(v @ product), product
    return value


def train(x: Tensor, y: Tensor, lr: float, batch: int, epochs: int, seed: int) -> nn.Module | None:
    """Train with plain SGD until the training accuracy is 99 %; None if it is never reached."""
    torch.manual_seed(seed)
    layers = [nn.Linear(x.shape[1], 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(100, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
        if accuracy(net, x, y) >= 0.99:
            return net
    return None


def main() -> None:
    """Print a row for each batch size and learning rate, averaged over seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--d", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    sizes = parser.parse_args()
    x, y = labelled(sizes.n, sizes.d, seed=1)
    x_test, y_test = labelled(2000, sizes.d, seed=2)
    print(f"{'batch':>6} {'η':>6} {'2/η':>7} {'λ_max':>7} {'test accuracy':>14} {'missed':>7}")
    for batch, rates in ((10, (0.01, 0.03, 0.1)), (sizes.n, (0.2, 0.4, 0.8))):
        for lr in rates:
            nets = [train(x, y, lr, batch, sizes.epochs, seed) for seed in range(sizes.seeds)]
            done = [net for net in nets if net is not None]
            top = [lambda_max(net, x, y) for net in done]
            good = [100 * accuracy(net, x_test, y_test) for net in done]
            row = [sum(values) / len(done) if done else float("nan") for values in (top, good)]
            missed = len(nets) - len(done)
            print(f"{batch:6} {lr:6g} {2 / lr:7.1f} {row[0]:7.2f} {row[1]:13.1f}% {missed:7}")


if __name__ == "__main__":
    main()
