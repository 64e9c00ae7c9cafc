"""Section 2: how the trace of the Hessian is related to Gaussian noise and to 1-SAM."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from ...data import from_arrays
from ...losses import Loss
from ...measures.average_sharpness import AverageSharpness
from ...models import TwoLayer
from ...optim import SAM
from ...theory.solution import Array, Solution
from ..contract import (
    Line,
    Trial,
    at_least,
    at_most,
    claim,
    equal,
    estimate,
    near_zero,
    shown,
    slope,
)
from ..instances import measured, random_data, random_interpolator


@claim(
    "wen2023.sharpness.gaussian",
    "Section 2, Sharpness",
    "identity",
    "Tr ∇²L is the expected rise of the loss under Gaussian noise: 2 E[L(θ+ρz) − L(θ)]/ρ² → "
    "Tr ∇²L as ρ → 0, with an error of order ρ²",
    note="The third order vanishes by symmetry; ReLU kinks are excluded (tanh here).",
)
def gaussian(trial: Trial) -> Iterator[Line]:
    """Sample in pairs ±z; subtract z'∇²L z, whose mean is known, to show the error of order ρ²."""
    rng = trial.rng("gaussian")
    data = random_data(rng, 8, 3)
    net = random_interpolator(rng, TwoLayer(width=12, activation="tanh"), data)
    hessian, trace = net.hessian(), net.trace
    yield equal(
        "tanh, p=60, n=8, interpolating: Tr of the dense Hessian against (2/n)Σ‖∇f‖²",
        np.trace(hessian),
        trace,
        rel=1e-8,
    )
    pairs, radii = trial.size(20_000, 200_000), (0.02, 0.01, 0.005, 0.0025)
    z = rng.normal(size=(pairs, 60))
    rises = {rho: _rises(net, rho * z) * 2 / rho**2 for rho in radii}
    extrapolated = (4 * rises[0.005] - rises[0.01]) / 3
    yield estimate(
        f"2 E ΔL/ρ² extrapolated from ρ = 0.01 and 0.005, {pairs:,} pairs", extrapolated, trace
    )
    quadratic = np.einsum("ki,ij,kj->k", z, hessian, z, optimize=True)
    errors = [abs(float(np.mean(rises[rho] - quadratic))) for rho in radii]
    yield slope("exponent of the error over ρ = 0.02, 0.01, 0.005, 0.0025", radii, errors, near=2.0)
    sigma = 0.005
    average = AverageSharpness(sigma=sigma, tolerance=0.02, max_products=2000)
    found = measured(average, net, trial.seed)
    yield at_most(
        "|2 S_σ/σ² − Tr| of flatlab's average sharpness, in its standard errors",
        abs(float(found.value) - trace * sigma**2 / 2) / float(found.stderr),
        4.5,
    )


def _rises(net: Solution, steps: Array) -> Array:
    """Return (L(θ+δ) + L(θ−δ))/2 − L(θ) for every row δ."""
    parameters = {name: p.detach() for name, p in net.module.named_parameters()}
    sizes = [p.numel() for p in parameters.values()]
    x, y = torch.tensor(net.data.x_train), torch.tensor(net.data.y_train)

    def loss(delta: torch.Tensor) -> torch.Tensor:
        parts = torch.split(delta, sizes)
        moved = {
            name: p + part.view_as(p)
            for part, (name, p) in zip(parts, parameters.items(), strict=True)
        }
        f: torch.Tensor = torch.func.functional_call(net.module, moved, (x,))
        return Loss("mse").torch(f, y)

    many = torch.func.vmap(loss, chunk_size=5000)
    delta = torch.tensor(steps)
    mean = (many(delta) + many(-delta)) / 2
    return np.asarray(mean) - net.loss()


@claim(
    "wen2023.sharpness.1sam",
    "Section 2, Sharpness",
    "identity",
    "At interpolation ∇²L_i = 2∇f_i∇f_iᵀ has rank one, so the mean over examples of λ_max(∇²L_i), "
    "which SAM with batch size 1 reduces, is Tr ∇²L; on L = (aw − 1)² 1-SAM drifts along aw = 1 "
    "to a = w, where Tr = 2(a² + w²) is least",
    note="That 1-SAM minimises the trace in general is a limit η, ρ → 0 of a cited theorem.",
)
def one_sam(trial: Trial) -> Iterator[Line]:
    """Take dense Hessians example by example, then run SAM on two parameters."""
    rng = trial.rng("1sam")
    data = random_data(rng, 8, 5)
    net = random_interpolator(rng, TwoLayer(width=12), data)
    spectra = []
    for i in range(data.n):
        alone = from_arrays(data.x_train[i : i + 1], data.y_train[i : i + 1])
        spectra.append(np.linalg.eigvalsh(Solution(net.arch, net.params, alone).hessian()))
    top = np.array([values[-1] for values in spectra])
    rest = max(float(np.max(np.abs(values[:-1]))) for values in spectra)
    whole = float(np.trace(net.hessian()))
    yield near_zero(
        "n=8, d=5, m=12: largest other |eigenvalue| of a ∇²L_i over λ_max", rest / top.max(), 1e-9
    )
    yield equal("mean of λ_max(∇²L_i) against Tr of the dense ∇²L", top.mean(), whole, rel=1e-8)
    yield equal("and against (2/n)Σ‖∇f‖²", top.mean(), net.trace, rel=1e-8)
    steps = trial.size(1000, 20_000)
    start = (2.0, 0.505)  # off the manifold: on it the gradient is zero and SAM does not move
    yield shown("(aw − 1)² from a = 2, w = 0.505: Tr on the manifold nearby", 8.5)
    trace, product = _sam_on_toy(start, 0.2, steps)
    yield at_most(
        f"2(a² + w²) after {steps:,} steps of 1-SAM (lr 0.05, ρ 0.2); 4 at a = w = 1", trace, 4.1
    )
    yield near_zero("|aw − 1| there", product - 1, 0.05)
    yield at_least(
        "2(a² + w²) after as many steps with ρ = 0", _sam_on_toy(start, 0.0, steps)[0], 8.4
    )


def _sam_on_toy(start: tuple[float, float], rho: float, steps: int) -> tuple[float, float]:
    """Run SAM on (aw − 1)²; return 2(a² + w²) and aw."""
    theta = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimizer = SAM([theta], lr=0.05, rho=rho)

    def closure() -> torch.Tensor:
        loss = (theta[0] * theta[1] - 1) ** 2
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    a, w = theta.tolist()
    return 2 * (a * a + w * w), a * w
