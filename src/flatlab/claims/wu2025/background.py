"""Background: the tables of the slides, and SGD as gradient descent with noise."""

from __future__ import annotations

import itertools

import numpy as np

from ...models import TwoLayer
from ...theory.solution import Array
from ..contract import Trial, claim
from ..instances import random_data, random_network
from ..lines import Lines, above, at_least, equal, near_zero, shown, true

# Test accuracy in per cent, small and large batch; sharpness at ε = 1e-3 and 5e-4, each small and
# large batch (Tables 2 and 4 of Keskar et al.).
KESKAR = {
    "F1": (98.03, 97.81, 0.11, 9.22, 0.05, 9.17),
    "F2": (64.02, 59.45, 0.29, 23.63, 0.05, 6.28),
    "C1": (80.04, 77.26, 2.18, 137.25, 0.71, 29.50),
    "C2": (89.24, 87.26, 0.95, 25.09, 0.31, 5.82),
    "C3": (49.58, 46.45, 17.02, 236.03, 4.03, 86.96),
    "C4": (63.08, 57.81, 6.05, 72.99, 1.89, 19.85),
}
# SuperGLUE average and the CoPA task, without and with SAM (Figure 10).
SUPERGLUE = {
    "Small": (67.7, 68.4, 67.0, 61.0),
    "Base": (75.3, 78.5, 71.0, 78.0),
    "Large": (84.3, 84.6, 89.0, 86.0),
    "XL": (87.2, 89.1, 95.0, 95.0),
}
Layers = tuple[int | str, ...]
_FOUR = ("pool", 256, 256, 256, 256, "pool", 512, 512, 512, 512, "pool", 512, 512, 512, 512)
VGG_11: Layers = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512)
VGG_19: Layers = (64, 64, "pool", 128, 128, *_FOUR)


@claim("wu2025.table.params", "Figure 1", "text",
       "The parameter counts of image classifiers follow from their layers: one hidden layer of "
       "512 units on 28×28×3 inputs and 10 classes has 1,209,866, AlexNet 61,100,840, VGG-11 "
       "132,863,336, VGG-19 143,667,240, ResNet-18 11,689,512 and ResNet-152 60,192,808",
       note="The two Inception networks and the small AlexNet are not described on the slides; "
       "“I,387,786” is 1,387,786.")  # fmt: skip
def parameters(trial: Trial) -> Lines:
    yield equal("MLP 1×512 on crops of 28×28×3", _dense(28 * 28 * 3, 512, 10), 1_209_866, rel=0)
    yield equal("AlexNet", _alexnet(), 61_100_840, rel=0)
    yield equal("VGG-11", _vgg(VGG_11), 132_863_336, rel=0)
    yield equal("VGG-19", _vgg(VGG_19), 143_667_240, rel=0)
    yield equal("ResNet-18", _resnet((2, 2, 2, 2), bottleneck=False), 11_689_512, rel=0)
    yield equal("ResNet-152", _resnet((3, 8, 36, 3), bottleneck=True), 60_192_808, rel=0)


def _dense(*sizes: int) -> int:
    return sum((a + 1) * b for a, b in itertools.pairwise(sizes))


def _convolution(a: int, b: int, size: int) -> int:
    return (size**2 * a + 1) * b


def _alexnet() -> int:
    layers = ((3, 64, 11), (64, 192, 5), (192, 384, 3), (384, 256, 3), (256, 256, 3))
    return sum(_convolution(*each) for each in layers) + _dense(256 * 6 * 6, 4096, 4096, 1000)


def _vgg(layers: Layers) -> int:
    widths = [3, *(each for each in layers if isinstance(each, int))]
    features = sum(_convolution(a, b, 3) for a, b in itertools.pairwise(widths))
    return features + _dense(512 * 7 * 7, 4096, 4096, 1000)


def _resnet(blocks: tuple[int, ...], bottleneck: bool) -> int:
    """Count convolutions without bias, each followed by BatchNorm with two parameters a channel."""

    def normalised(a: int, b: int, size: int) -> int:
        return size**2 * a * b + 2 * b

    total, now = normalised(3, 64, 7), 64
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        out = 4 * width if bottleneck else width
        for index in range(count):
            if bottleneck:
                total += normalised(now, width, 1) + normalised(width, width, 3)
                total += normalised(width, out, 1)
            else:
                total += normalised(now, width, 3) + normalised(width, out, 3)
            if index == 0 and now != out:
                total += normalised(now, out, 1)
            now = out
    return total + _dense(now, 1000)


@claim("wu2025.table.geiping", "Figure 4", "text",
       "300 epochs of 50,000 images in batches of 128 are 117,000 steps, ⌊50000/128⌋·300",
       note="The other rows are full-batch, one step an epoch; the accuracies are "
       "measurements.")  # fmt: skip
def steps(trial: Trial) -> Lines:
    yield equal("⌊50000/128⌋·300", 50_000 // 128 * 300, 117_000, rel=0)


@claim("wu2025.table.keskar", "Tables 2 and 4 of Keskar et al.", "text",
       "Small batches have the better test accuracy in all six rows and the smaller sharpness in "
       "all twelve cells",
       note="Compares the printed numbers with each other; it trains nothing.")  # fmt: skip
def keskar(trial: Trial) -> Lines:
    table = np.array(list(KESKAR.values()))
    better = table[:, 0] - table[:, 1]
    yield equal("rows where small batches test better", np.sum(better > 0), 6, rel=0)
    yield above("least difference of test accuracy, per cent", better.min(), 0)
    ratios = table[:, [3, 5]] / table[:, [2, 4]]
    yield equal("cells where they are flatter", np.sum(ratios > 1), 12, rel=0)
    yield above("least sharpness of large batches over that of small ones", ratios.min(), 1)


@claim("wu2025.table.sam", "Figure 10", "text",
       "SAM raises the SuperGLUE average at all four model sizes, though not the score of every "
       "task",
       note="Compares the printed numbers with each other; it trains nothing.")  # fmt: skip
def superglue(trial: Trial) -> Lines:
    table = np.array(list(SUPERGLUE.values()))
    yield equal("sizes at which the average rises", np.sum(table[:, 1] > table[:, 0]), 4, rel=0)
    yield above("least rise of the average", np.min(table[:, 1] - table[:, 0]), 0)
    yield at_least("sizes at which the task CoPA falls", np.sum(table[:, 3] < table[:, 2]), 1)


@claim("wu2025.sgd_noise", "SGD = GD + noise", "identity",
       "A batch drawn with replacement gives g + ξ/√B with E ξ = 0 and E ξξᵀ = (1/n)Σ(g_i − g)(g_i "
       "− g)ᵀ; without replacement the covariance has the factor (n − B)/(n − 1)")  # fmt: skip
def noise(trial: Trial) -> Lines:
    """Enumerate every batch."""
    rng, n = trial.rng("sgd-noise"), 6
    net = random_network(rng, TwoLayer(width=3, activation="tanh"), random_data(rng, n, 2))
    misfit = net.outputs() - net.data.y_train
    gradients = misfit[:, None] * net.gradients()  # of the losses ½(f − y)²
    g = gradients.mean(0)
    sigma = (gradients - g).T @ (gradients - g) / n
    size, what = float(np.abs(sigma).max()), f"tanh network, n = {n}"
    for batch in (1, 2, 3):
        ordered = np.array(list(itertools.product(range(n), repeat=batch)))
        xi = np.sqrt(batch) * (gradients[ordered].mean(1) - g)
        off = np.abs(xi.mean(0)).max() / np.sqrt(size)
        yield near_zero(f"{what}, B = {batch}: mean of ξ over all batches", off, 1e-12)
        yield near_zero("its covariance less Σ, with replacement", _off(xi, sigma, size), 1e-12)
        chosen = np.array(list(itertools.combinations(range(n), batch)))
        xi = np.sqrt(batch) * (gradients[chosen].mean(1) - g)
        factor = (n - batch) / (n - 1)
        off = _off(xi, factor * sigma, size)
        yield near_zero(f"without, less {n - batch}/{n - 1} Σ", off, 1e-12)
    other = _off(xi, sigma, size)
    yield above("the same against Σ: the two ways of drawing differ", other, 0.01)
    elsewhere = net.with_params(W2=2 * net.params["W2"])
    moved = (elsewhere.outputs() - net.data.y_train)[:, None] * elsewhere.gradients()
    change = np.abs(np.cov(moved.T, bias=True) - sigma).max() / size
    yield true("the noise depends on the parameters", change > 1e-6)
    yield shown("relative change of Σ as the output layer doubles", change)


def _off(xi: Array, sigma: Array, size: float) -> float:
    covariance = xi.T @ xi / len(xi)
    return float(np.abs(covariance - sigma).max() / size)
