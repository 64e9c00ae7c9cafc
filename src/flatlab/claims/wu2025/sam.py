"""Sharpness-aware minimisation: its loss, its ascent step and its update."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from scipy import optimize

from ...measures.sam_sharpness import SamSharpness
from ...models import TwoLayer
from ...optim import SAM
from ...problem import Problem
from ...theory.solution import Array
from ..contract import Trial, claim
from ..instances import Quadratic, random_data, random_network, reading
from ..lines import Lines, at_least, at_most, equal, near_zero, slope


@claim("wu2025.sam_objective", "Sharpness-aware minimisation", "definition",
       "SAM's loss is L(θ) + (max_{‖ε‖≤ρ} L(θ + ε) − L(θ)), the largest loss in a ball",
       note="flatlab finds the maximum by ascent; on quadratics it is compared with the exact "
       "one.")  # fmt: skip
def objective(trial: Trial) -> Lines:
    rng, p, rho = trial.rng("sam-objective"), 8, 0.3
    for index in range(trial.size(3, 20)):
        g, root = rng.normal(size=p), rng.normal(size=(p, p))
        H = np.asarray((root + root.T) / 2)
        exact, at = _trust_region(g, H, rho)
        what = f"random quadratic {index + 1}, p = {p}, ρ = {rho}"
        yield equal(f"{what}: ‖maximiser‖/ρ", np.linalg.norm(at) / rho, 1, rel=1e-8)
        tried = rng.normal(size=(2000, p))
        tried *= rho * rng.random((2000, 1)) ** (1 / p) / np.linalg.norm(tried, axis=1)[:, None]
        rises = tried @ g + np.einsum("ki,ij,kj->k", tried, H, tried) / 2
        yield at_most("largest rise at 2,000 other points of the ball", rises.max(), exact)
        found = reading(SamSharpness(rho=rho, steps=500, restarts=4), Quadratic(g, H), trial.seed)
        yield equal("the sharpness by ascent over the largest rise", found / exact, 1, rel=1e-5)


def _trust_region(g: Array, H: Array, rho: float) -> tuple[float, Array]:
    """Return the maximum of gᵀε + ½εᵀHε on ‖ε‖ ≤ ρ where it is on the sphere, and where it is.

    There (μI − H)ε = g for a μ ≥ max(λ_max, 0), and ‖ε‖ = ρ decides μ.
    """
    values, vectors = np.linalg.eigh(H)
    along = vectors.T @ g

    def length(mu: float) -> float:
        return float(np.linalg.norm(along / (mu - values))) - rho

    low = max(float(values[-1]), 0.0)
    low += 1e-12 * max(1.0, low)
    mu = optimize.brentq(length, low, low + np.linalg.norm(g) / rho + 1, xtol=1e-15, rtol=1e-15)
    at = vectors @ (along / (mu - values))
    return float(g @ at + at @ H @ at / 2), at


@claim("wu2025.sam_epsilon", "The simplification", "identity",
       "The maximiser of the linearised loss in the ball is ρ∇L/‖∇L‖, where ∇L ≠ 0",
       note="Where ∇L = 0 there is no such direction; flatlab then takes no ascent "
       "step.")  # fmt: skip
def ascent(trial: Trial) -> Lines:
    rng, p, rho = trial.rng("sam-epsilon"), 12, 0.3
    g = rng.normal(size=p)
    tried = rng.normal(size=(10_000, p))
    tried *= rho / np.linalg.norm(tried, axis=1)[:, None]
    at = rho * g / np.linalg.norm(g)
    yield equal("ε·g at ρg/‖g‖ over ρ‖g‖", at @ g / (rho * np.linalg.norm(g)), 1, rel=1e-12)
    yield at_most("the largest at 10,000 other points, over ρ‖g‖",
                  np.max(tried @ g) / (rho * np.linalg.norm(g)), 1)  # fmt: skip
    root = rng.normal(size=(p, p))
    H, radii, angles, gaps = np.asarray(root @ root.T / p), (0.1, 0.03, 0.01, 0.003), [], []
    for radius in radii:
        exact, best = _trust_region(g, H, radius)
        cosine = float(best @ g) / float(np.linalg.norm(best) * np.linalg.norm(g))
        angles.append(math.acos(min(1.0, cosine)))
        step = radius * g / np.linalg.norm(g)
        gaps.append(exact - float(g @ step + step @ H @ step / 2))
    yield slope("quadratic: exponent in ρ of the angle to the true maximiser", radii, angles,
                near=1, within=0.1)  # fmt: skip
    yield at_least("least rise missed by the simplification", min(gaps), 0)
    yield slope("exponent in ρ of the rise missed", radii, gaps, near=3, within=0.2)


@claim("wu2025.sam_step", "eq. (1)", "rate",
       "A step θ − η∇L(θ + ρ∇L/‖∇L‖) descends L + ρ‖∇L‖ up to O(ρ²), and the derivative of ε(θ) "
       "that it neglects is O(ρ²) as well")  # fmt: skip
def update(trial: Trial) -> Lines:
    rng = trial.rng("sam-step")
    net = random_network(rng, TwoLayer(width=8, activation="tanh"), random_data(rng, 10, 3))
    problem = Problem(net.module, "mse", net.data)
    _, gradient = problem.value_and_gradient()
    g, H = gradient.numpy(), net.hessian()
    size = float(np.linalg.norm(g))
    first_order = np.asarray(H @ g / size)  # ∇‖∇L‖
    radii, off, neglected = (0.1, 0.03, 0.01, 0.003), [], []
    for rho in radii:
        with problem.moved(gradient * (rho / size)):
            _, moved = problem.value_and_gradient()
        there = moved.numpy()
        off.append(float(np.linalg.norm(there - g - rho * first_order)))
        across = there - g * float(g @ there) / size**2  # ε has no derivative along ∇L
        neglected.append(float(np.linalg.norm(rho / size * H @ across)))
    what = "tanh network, p = 40, n = 10"
    yield slope(f"{what}: exponent in ρ of ∇L(θ + ε) − ∇(L + ρ‖∇L‖)", radii, off, near=2,
                within=0.3)  # fmt: skip
    yield slope("exponent in ρ of the neglected term", radii, neglected, near=2, within=0.3)
    lr, rho = 0.1, 0.05
    before = torch.cat([p.detach().flatten() for p in net.module.parameters()]).numpy()
    stepped = _one_step(net.module, net.data.x_train, net.data.y_train, lr, rho)
    with problem.moved(gradient * (rho / size)):
        _, moved = problem.value_and_gradient()
    expected = before - lr * moved.numpy()
    yield near_zero("one step of flatlab's SAM less eq. (1)", stepped - expected, 1e-12)


def _one_step(module: torch.nn.Module, x: Array, y: Array, lr: float, rho: float) -> Array:
    """Return the parameters of a copy of the module after one step of the optimizer."""
    made = copy.deepcopy(module)
    optimizer = SAM(made.parameters(), lr=lr, rho=rho)
    inputs, labels = torch.tensor(x), torch.tensor(y)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = (made(inputs) - labels).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)
    return torch.cat([p.detach().flatten() for p in made.parameters()]).numpy()
