"""Sharpness as the rise of the loss under a small perturbation, and rescaling."""

from __future__ import annotations

import math

import numpy as np

from ...measures.average_sharpness import AverageSharpness
from ...measures.sam_sharpness import SamSharpness
from ...models import TwoLayer
from ...theory.solution import Array, Solution
from ..contract import Trial, claim
from ..instances import measured, random_data, random_interpolator, reading
from ..lines import Lines, above, at_least, at_most, equal, near_zero, slope

TOY = (2.0, 0.5)
"""A minimum (a, w) of L = ½(aw − 1)² other than the flattest."""
RADII = (0.1, 0.03, 0.01, 0.003)
SIGMAS = 4.5
"""Standard errors that a mean may be off: by chance once in 150,000 checks."""


@claim("wu2025.perturbation.lmax", "Sharpness, first display", "identity",
       "At a minimum λ_max(∇²L) = max_{‖ε‖≤ρ} 2(L(θ + ε) − L(θ))/ρ² + O(ρ)",
       note="L must be twice differentiable at θ: a ReLU network on a kink is excluded, here and "
       "below.")  # fmt: skip
def worst_perturbation(trial: Trial) -> Lines:
    a, w = TOY
    truth = a**2 + w**2
    found = np.array([2 * _worst_of_toy(a, w, rho) / rho**2 for rho in RADII])
    where = f"L = ½(aw − 1)² at ({a:g}, {w:g})"
    yield equal(f"{where}: value at ρ = {RADII[-1]:g}", found[-1], truth, rel=0.01)
    yield slope("exponent of its error in ρ", RADII, np.abs(found - truth), near=1, within=0.1)
    net = _interpolating(trial, "lmax")
    top = float(np.linalg.eigvalsh(net.hessian("half_mse"))[-1])
    values = {}
    for rho in (1e-2, 1e-3):
        worst = SamSharpness(rho=rho, steps=200, restarts=3)
        values[rho] = 2 * reading(worst, net, trial.seed, "half_mse") / rho**2 / top
    yield equal("tanh network, p = 40: value over λ_max at ρ = 0.001", values[1e-3], 1, rel=0.01)
    nearer = abs(values[1e-3] - 1) / max(abs(values[1e-2] - 1), 1e-3)
    yield at_most("its error at ρ = 0.001 over that at 0.01, or over 0.001", nearer, 1)


def _worst_of_toy(a: float, w: float, rho: float) -> float:
    """Return the largest ½((a + ε1)(w + ε2) − 1)² in the ball: on its boundary, by angle."""
    low, high, best = 0.0, 2 * math.pi, 0.0
    for _ in range(4):
        angles = np.linspace(low, high, 2001)
        values = (a + rho * np.cos(angles)) * (w + rho * np.sin(angles)) - 1
        best, at = float(0.5 * np.max(values**2)), int(np.argmax(values**2))
        low, high = float(angles[max(at - 1, 0)]), float(angles[min(at + 1, 2000)])
    return best


@claim("wu2025.perturbation.trace", "Sharpness, second display", "identity",
       "At a minimum Tr ∇²L = E 2(L(θ + ε) − L(θ))/ρ² + O(ρ²) for ε ~ N(0, ρ²I)",
       note="The slide has O(ρ); the term of order ρ³ in L is odd and has mean zero.")  # fmt: skip
def expected_perturbation(trial: Trial) -> Lines:
    a, w = TOY
    nodes, weights = _gauss(8)
    for rho in RADII:
        one, two = (each.ravel() for each in np.meshgrid(nodes, nodes))
        rise = 0.5 * ((a + rho * one) * (w + rho * two) - 1) ** 2
        mean = float(rise @ np.outer(weights, weights).ravel())
        what = f"L = ½(aw − 1)² at ({a:g}, {w:g}), ρ = {rho:g}: exact mean"
        yield equal(what, 2 * mean / rho**2, a**2 + w**2 + rho**2, rel=1e-9)
    net = _interpolating(trial, "trace")
    trace, rho = float(np.trace(net.hessian("half_mse"))), 1e-3
    average = AverageSharpness(sigma=rho, tolerance=0.02, max_products=2000)
    drawn = measured(average, net, trial.seed, "half_mse")
    off = abs(2 * float(drawn.value) / rho**2 - trace) / (2 * float(drawn.stderr) / rho**2)
    yield at_most("tanh network, p = 40, ρ = 0.001: |mean − Tr|, standard errors", off, SIGMAS)
    relative = abs(2 * float(drawn.value) / rho**2 / trace - 1)
    yield at_most("the same relative to Tr", relative, 0.15)


@claim("wu2025.perturbation.frobenius", "Sharpness, third display", "identity",
       "At a minimum ‖∇²L‖_F² = E 2(L(θ + ε) − L(θ))/ρ² + O(ρ²) for ε ~ N(0, ρ²∇²L)",
       note="∇²L must be positive semidefinite, as it is at a minimum.")  # fmt: skip
def curved_perturbation(trial: Trial) -> Lines:
    a, w = TOY
    nodes, weights = _gauss(8)
    for rho in RADII:  # ∇²L = uuᵀ with u = (w, a), so ε = ρzu
        rise = 0.5 * ((a + rho * nodes * w) * (w + rho * nodes * a) - 1) ** 2
        mean = 2 * float(rise @ weights) / rho**2
        truth = (a**2 + w**2) ** 2 + 3 * rho**2
        what = f"L = ½(aw − 1)² at ({a:g}, {w:g}), ρ = {rho:g}: exact mean"
        yield equal(what, mean, truth, rel=1e-9)
    net, rho = _interpolating(trial, "frobenius"), 1e-3
    values, vectors = np.linalg.eigh(net.hessian("half_mse"))
    root = vectors * np.sqrt(np.maximum(values, 0))
    z = trial.rng("frobenius/noise").normal(size=(trial.size(4000, 40_000), len(values)))
    pairs = (_losses(net, rho * z @ root.T) + _losses(net, -rho * z @ root.T)) / rho**2
    error = float(pairs.std(ddof=1)) / math.sqrt(len(pairs))
    truth = float(np.sum(values**2))
    off = abs(float(pairs.mean()) - truth) / error
    yield at_most("tanh network, p = 40, ρ = 0.001: |mean − ‖H‖_F²|, s.e.", off, SIGMAS)
    yield equal("mean over ‖H‖_F²", pairs.mean() / truth, 1, rel=0.15)


def _gauss(count: int) -> tuple[Array, Array]:
    """Return nodes and weights that integrate polynomials against N(0, 1) exactly."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


def _interpolating(trial: Trial, name: str) -> Solution:
    """Return a tanh network of 40 parameters through 6 points in the plane."""
    rng = trial.rng(name)
    arch = TwoLayer(width=10, activation="tanh")
    return random_interpolator(rng, arch, random_data(rng, 6, 2))


def _losses(net: Solution, moves: Array) -> Array:
    """Return ½ mean (f − y)² of the tanh network with its parameters moved, for each move."""
    shapes = {name: np.shape(net.params[name]) for name in ("W1", "b1", "W2")}
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(moves, ends[:-1], axis=1)
    W1, b1, W2 = (
        net.params[name] + part.reshape(len(moves), *shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    )
    hidden = np.tanh(np.einsum("smd,nd->snm", W1, net.data.x_train) + b1[:, None])
    misfit = np.einsum("snm,sm->sn", hidden, W2) - net.data.y_train
    return np.asarray(np.mean(misfit**2, 1) / 2)


@claim("wu2025.rescaling", "Sharp minima can generalise well", "identity",
       "a σ(wᵀx) = (a/λ) σ(λwᵀx) for ReLU and every λ > 0")  # fmt: skip
def rescaling(trial: Trial) -> Lines:
    rng = trial.rng("rescaling")
    data = random_data(rng, 20, 5)
    net = random_interpolator(rng, TwoLayer(width=30, bias=False), data)
    far = 10 * rng.normal(size=(500, 5))
    f = net.outputs(far)
    for _ in range(3):
        c = 10 ** rng.uniform(-3, 3, 30)
        other = net.with_params(W1=c[:, None] * net.params["W1"], W2=net.params["W2"] / c)
        off = np.max(np.abs(other.outputs(far) - f)) / np.max(np.abs(f))
        yield near_zero("30 neurons, λ from 0.001 to 1000: relative change of f", off, 1e-12)
        ratio = other.trace / net.trace
        yield above("the trace of its Hessian over that before, or its inverse",
                    max(ratio, 1 / ratio), 10)  # fmt: skip


@claim("wu2025.toy_hessian", "Sharp minima can generalise well", "identity",
       "L = ½(aw − 1)² has ∇²L = [[w², 1], [1, a²]] where aw = 1, with eigenvalues 0 and a² + w², "
       "least at |a| = |w| = 1 and without bound")  # fmt: skip
def toy(trial: Trial) -> Lines:
    import torch

    def loss(point: torch.Tensor) -> torch.Tensor:
        return (point[0] * point[1] - 1).square() / 2

    largest = []
    scales = np.append(10 ** trial.rng("toy").uniform(-2, 2, 50), [1.0, 1e3])
    entries, values = [], []
    for a in scales:
        w = 1 / a
        at = torch.tensor([a, w])
        H = torch.autograd.functional.hessian(loss, at).numpy()  # type: ignore[no-untyped-call]
        size = a**2 + w**2
        entries.append(np.abs(H - [[w**2, 1], [1, a**2]]).max() / size)
        low, high = np.linalg.eigvalsh(H)
        values.append(max(abs(low), abs(high - size)) / size)
        largest.append(float(high))
    yield near_zero("52 minima, a from 0.01 to 1000: entries of ∇²L, relative", entries, 1e-12)
    yield near_zero("its eigenvalues less 0 and a² + w², relative", values, 1e-12)
    yield at_least("least λ_max of them", min(largest), 2.0)
    yield equal("λ_max at a = w = 1", largest[-2], 2.0)
    yield above("λ_max at a = 1000: without bound", largest[-1], 1e5)
