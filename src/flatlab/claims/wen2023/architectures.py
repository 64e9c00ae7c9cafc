"""Section 2: the architectures, against their formulas and their symmetries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...data import from_arrays
from ...models import Deep, TwoLayer
from ...theory.solution import Solution
from ..contract import Line, Trial, claim, equal, near_zero, printed, true
from ..instances import random_data, random_network


@claim(
    "wen2023.arch.mlp",
    "Section 2",
    "definition",
    "f = W2 relu(W1 x) without and W2 relu(W1 x + b1) with bias; D layers have a bias in the "
    "first only. f does not change under (W1, b1)_j → c(W1, b1)_j, W2_j → W2_j/c, and a bias is "
    "a constant input",
)
def mlp(trial: Trial) -> Iterator[Line]:
    """Compare the torch networks with the formula and with themselves rescaled."""
    rng = trial.rng("mlp")
    data, width = random_data(rng, 40, 6), 15
    far = rng.normal(size=(200, 6))
    bias = random_network(rng, TwoLayer(width=width), data)
    W1, b1, W2 = (bias.params[name] for name in ("W1", "b1", "W2"))
    by_hand = np.maximum(far @ W1.T + b1, 0) @ W2
    yield near_zero(
        "d=6, m=15: largest |f − W2 relu(W1x + b1)| on 200 points",
        np.max(np.abs(bias.outputs(far) - by_hand)),
        1e-12,
    )
    c = np.exp(rng.normal(size=width))
    scaled = bias.with_params(W1=c[:, None] * W1, b1=c * b1, W2=W2 / c)
    yield near_zero(
        "largest change of f when 15 neurons are rescaled",
        np.max(np.abs(scaled.outputs(far) - by_hand)),
        1e-12,
    )
    longer = from_arrays(np.hstack([data.x_train, np.ones((data.n, 1))]), data.y_train)
    folded = Solution(
        TwoLayer(width=width, bias=False), {"W1": np.hstack([W1, b1[:, None]]), "W2": W2}, longer
    )
    yield near_zero(
        "largest |f_bias(x) − f_nobias(x, 1)|",
        np.max(np.abs(folded.outputs(np.hstack([far, np.ones((200, 1))])) - by_hand)),
        1e-12,
    )
    for depth in (3, 5):
        deep = random_network(rng, Deep(depth=depth, width=width), data)
        u = np.maximum(far @ deep.params["W1"].T + deep.params["b1"], 0)
        for layer in range(2, depth):
            u = np.maximum(u @ deep.params[f"W{layer}"].T, 0)
        yield near_zero(
            f"D={depth}: largest |f − W_D relu ⋯ relu(W1 x + b1)|",
            np.max(np.abs(deep.outputs(far) - u @ deep.params[f"W{depth}"])),
            1e-12,
        )


@claim(
    "wen2023.arch.simbn",
    "Section 2, 2-MLP-Sim-BN",
    "definition",
    "SBN(u)[j] = γ_j u[j]/(Σ_i u_i[j]²/n)^{1/2} with one γ_j a neuron: neurons have mean square "
    "γ_j², f ignores the scale of each row of (W1, b1), and (2/n)Σ‖∇_{γ,W2} f‖² = "
    "2(‖W2‖² + ‖γ‖²)",
    as_printed="γ is one number for all neurons (the appendix uses γ[j])",
    errata=("E16",),
    note="A neuron that is zero on the training set is 0/0 in the formula; here it is 0.",
)
def simbn(trial: Trial) -> Iterator[Line]:
    """Scale rows of the first layer and look at outputs and gradients."""
    rng = trial.rng("simbn")
    data, m = random_data(rng, 30, 6), 10
    net = random_network(rng, TwoLayer(width=m, norm="batch"), data)
    W1, b1, W2, gamma = (net.params[name] for name in ("W1", "b1", "W2", "gamma"))
    units = np.eye(m)
    squares = [np.mean(net.with_params(gamma=np.ones(m), W2=unit).outputs() ** 2) for unit in units]
    yield near_zero(
        "d=6, n=30, m=10: largest |(1/n)Σ SBN_1(u_i)[j]² − 1|",
        np.max(np.abs(np.array(squares) - 1)),
        1e-12,
    )
    c = np.exp(rng.normal(size=m))
    scaled = net.with_params(W1=c[:, None] * W1, b1=c * b1)
    far = rng.normal(size=(200, 6))
    yield near_zero(
        "largest change of f when each row of (W1, b1) is scaled, 200 new points",
        np.max(np.abs(scaled.outputs(far) - net.outputs(far))),
        1e-12,
    )
    before, after = net.gradients(), scaled.gradients()
    rows = np.concatenate([np.repeat(c, 6), c])
    yield near_zero(
        "largest |c ∂f/∂(W1, b1) after − before|: degree −1",
        np.max(np.abs(rows * after[:, : 7 * m] - before[:, : 7 * m])),
        1e-10,
    )
    of_W2, of_gamma = before[:, 7 * m : 8 * m], before[:, 8 * m :]
    yield equal(
        "(2/n)Σ‖∇_{γ,W2} f‖² against 2(‖W2‖² + ‖γ‖²), γ a vector",
        2 * np.mean(np.sum(of_W2**2, 1) + np.sum(of_gamma**2, 1)),
        2 * float(W2 @ W2 + gamma @ gamma),
    )
    scalar = net.with_params(gamma=np.full(m, gamma[0])).gradients()
    shared = np.sum(scalar[:, 7 * m : 8 * m] ** 2, 1) + np.sum(scalar[:, 8 * m :], 1) ** 2
    yield printed(
        equal(
            "the same with one γ for all neurons",
            2 * np.mean(shared),
            2 * float(W2 @ W2 + gamma[0] ** 2),
        )
    )
    dead = net.with_params(W1=np.zeros_like(W1), b1=-np.ones(m))
    yield near_zero("f on 200 points where every neuron is dead", np.max(np.abs(dead.outputs(far))))


@claim(
    "wen2023.arch.simln",
    "Section 2, 2-MLP-Sim-LN",
    "definition",
    "f = W2 h/max(‖h‖, ε) with h = relu(W1 x + b1): where ‖h‖ > ε it ignores a common scale of "
    "(W1, b1) and ‖∇_{W2} f‖ = 1; where ‖h‖ ≤ ε it is the plain network divided by ε",
    note="f has no derivative where ‖h‖ = ε.",
)
def simln(trial: Trial) -> Iterator[Line]:
    """Look at one network with a small and with a large ε."""
    rng = trial.rng("simln")
    data, m = random_data(rng, 60, 6), 12
    net = random_network(rng, TwoLayer(width=m, norm="layer", ln_epsilon=1e-3), data)
    alive = np.linalg.norm(net.hidden()[0], axis=1) > 1e-2
    yield true(
        f"d=6, m=12: ‖h‖ > 10ε at {alive.sum()} of 60 points, enough to look at",
        bool(alive.sum() >= 20),
    )
    scaled = net.with_params(W1=7.3 * net.params["W1"], b1=7.3 * net.params["b1"])
    yield near_zero(
        "largest change of f under (W1, b1) → 7.3 (W1, b1)",
        np.max(np.abs((scaled.outputs() - net.outputs())[alive])),
        1e-12,
    )
    of_W2 = net.gradients()[alive][:, 7 * m :]
    yield near_zero("largest |‖∇_{W2} f‖² − 1|", np.max(np.abs(np.sum(of_W2**2, 1) - 1)), 1e-12)
    small = Solution(TwoLayer(width=m, norm="layer", ln_epsilon=100.0), net.params, data)
    plain = Solution(TwoLayer(width=m), net.params, data)
    yield near_zero(
        "ε = 100, above every ‖h‖: largest |f − W2 h/ε|",
        np.max(np.abs(small.outputs() - plain.outputs() / 100)),
        1e-14,
    )
    yield near_zero(
        "and of the gradients", np.max(np.abs(small.gradients() - plain.gradients() / 100)), 1e-14
    )
