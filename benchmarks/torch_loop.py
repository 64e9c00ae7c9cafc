"""The torch trainer compared with a bare PyTorch loop of the same steps, on a small CNN.

T_train is the processor time of `flatlab.train` into a run directory, with progress, log points and
checkpoints. T_bare is the processor time of the loop a user would write: the same network, sample
order, memory format and steps, and the same evaluations of both sets, without a run directory. Both
take turns; the smallest time of each counts. Before timing, both must end with equal parameters.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import flatlab as fl
from flatlab.data import Dataset
from flatlab.engine.philox import key_words, visits
from flatlab.randomness import key

from .rows import Row, Target, Tell

MOST = Target("ratio", "<=", 1.03)
ARCH, N, N_TEST, LR, SEED = fl.models.CNN(), 2000, 1000, 0.01, 0
EPOCHS = {20: 15, 2000: 40}  # batch size → epochs: some seconds each
ROUNDS = 5
LOG = fl.LogGrid(per_decade=0, regular=2)


def data() -> Dataset:
    """Return 16×16 images of CIFAR-10, or without FLATLAB_DATA noise of the same shape."""
    if os.environ.get("FLATLAB_DATA"):
        return fl.data.images("cifar10", n=N, n_test=N_TEST, size=16)
    noise = np.random.default_rng(SEED).normal(size=(N + N_TEST, 3, 16, 16)).astype(np.float32)
    classes = np.arange(N + N_TEST) % 10
    return fl.data.arrays(noise[:N], classes[:N], noise[N:], classes[N:], classes=10)


def phase(batch: int) -> fl.Phase:
    """Return the steps: SGD with momentum."""
    return fl.Phase("sgd", lr=LR, momentum=0.9, batch_size=batch, epochs=EPOCHS[batch])


def trained(images: Dataset, batch: int) -> dict[str, np.ndarray]:
    """Train with flatlab into a run directory; return the parameters."""
    with tempfile.TemporaryDirectory() as folder:
        run = fl.train(
            ARCH, images, loss="cross_entropy", schedule=[phase(batch)], seed=SEED, log=LOG,
            out=Path(folder) / "run", report=lambda info: None,
        )  # fmt: skip
        return dict(run.params)


def looped(images: Dataset, batch: int) -> dict[str, np.ndarray]:
    """Train with a bare loop; return the parameters."""
    net: Any = ARCH.module(images, SEED).float()
    net.to(memory_format=torch.channels_last)
    sets = [(images.x_train, images.y_train), (images.x_test, images.y_test)]
    (x, y), test = (
        (torch.tensor(a).permute(0, 2, 3, 1).contiguous(), torch.tensor(b)) for a, b in sets
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)
    loss = torch.nn.functional.cross_entropy
    words, order = np.stack([key_words(key(SEED, "order"))]), np.empty(N, np.int64)
    logged = set(LOG.epochs((phase(batch),)))
    _evaluate(net, (x, y), test)
    for epoch in range(EPOCHS[batch]):
        visits(words, epoch, order)
        for start in range(0, N, batch):
            rows = torch.from_numpy(order[start : start + batch])
            optimizer.zero_grad()
            value = loss(net(x[rows].permute(0, 3, 1, 2)), y[rows])
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if epoch + 1 in logged:
            _evaluate(net, (x, y), test)
    return {name: p.detach().numpy() for name, p in net.named_parameters()}


def _evaluate(net: Any, *sets: tuple[torch.Tensor, torch.Tensor]) -> None:
    net.eval()
    with torch.no_grad():
        for x, y in sets:
            for start in range(0, len(y), 1000):
                f = net(x[start : start + 1000].permute(0, 3, 1, 2))
                torch.nn.functional.cross_entropy(f, y[start : start + 1000]).item()
                (f.argmax(1) != y[start : start + 1000]).sum().item()
    net.train()


def benchmark(tell: Tell) -> list[Row]:
    """Time both with a small batch and with the full batch."""
    images, rows = data(), []
    for batch in EPOCHS:
        tell(f"the torch trainer and a bare loop at batch size {batch}")
        ours, theirs = trained(images, batch), looped(images, batch)
        for name, value in ours.items():
            np.testing.assert_allclose(value, theirs[name], rtol=1e-3, atol=1e-4)
        seconds = {trained: [], looped: []}
        for _ in range(ROUNDS):
            for train, times in seconds.items():
                clock = time.process_time()
                train(images, batch)
                times.append(time.process_time() - clock)
        best = {train: min(times) for train, times in seconds.items()}
        what = f"train() of a small CNN over a bare PyTorch loop, batch size {batch}"
        ratio = best[trained] / best[looped]
        rows.append(Row("torch_loop", what, best[trained], "s", ratio, MOST))
    return rows
