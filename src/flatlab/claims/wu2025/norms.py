"""The Gauss–Newton matrix as sharpness, the norms it compares to, and what they bound."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import integrate

from ...data import from_arrays
from ...models import TwoLayer
from ...theory.solution import Array, Solution
from ...theory.weighted_norms import (
    enough_examples,
    gradients,
    limits,
    ratios,
    single_neuron,
    weighted_norm,
)
from ..contract import Trial, claim, printed
from ..instances import random_data, random_interpolator, random_network
from ..lines import (
    Lines,
    above,
    at_least,
    at_most,
    equal,
    estimate,
    near_zero,
    slope,
)


@claim("wu2025.g_vs_h", "An important observation", "identity",
       "For L̂ = (1/2n)Σe_i²: H = G + (1/n)Σe_i∇²f_i with G = (1/n)Σ∇f_i∇f_iᵀ, the Gauss–Newton "
       "matrix; H = G at interpolation and Tr G = (1/n)Σ‖∇f_i‖²",
       as_printed="G is called the empirical Fisher matrix, which is (1/n)Σe_i²∇f_i∇f_iᵀ",
       errata=("W11",))  # fmt: skip
def gauss_newton(trial: Trial) -> Lines:
    rng = trial.rng("g-vs-h")
    data = random_data(rng, 8, 3)
    arch = TwoLayer(width=12, activation="tanh")
    what = "tanh network, p = 60, n = 8"
    net = random_network(rng, arch, data)
    H, G = net.hessian("half_mse"), _gauss_newton(net)
    e, size = net.outputs() - data.y_train, float(np.abs(H).max())
    rest = np.mean([e[i] * _curvature(net, i) for i in range(data.n)], axis=0)
    yield near_zero(f"{what}: H − G − (1/n)Σe∇²f, relative", (H - G - rest) / size, 1e-9)
    yield above("‖H − G‖ over ‖H‖: away from interpolation they differ",
                np.linalg.norm(H - G) / np.linalg.norm(H), 1e-3)  # fmt: skip
    net = random_interpolator(rng, arch, data)
    H, G = net.hessian("half_mse"), _gauss_newton(net)
    size = float(np.linalg.norm(G))
    yield near_zero("interpolating: ‖H − G‖/‖G‖", np.linalg.norm(H - G) / size, 1e-8)
    trace = np.mean(np.sum(net.gradients() ** 2, 1))
    yield equal("Tr H against (1/n)Σ‖∇f‖²", np.trace(H), trace, rel=1e-8)
    e = net.outputs() - data.y_train
    fisher = (e[:, None] * net.gradients()).T @ (e[:, None] * net.gradients()) / data.n
    ratio = float(np.linalg.norm(fisher)) / size
    yield printed(equal("interpolating: ‖(1/n)Σe²∇f∇fᵀ‖ over ‖G‖", ratio, 1))
    yield near_zero("interpolating: ‖(1/n)Σe²∇f∇fᵀ‖ over ‖G‖", ratio, 1e-12)


def _gauss_newton(net: Solution) -> Array:
    J = net.gradients()
    return np.asarray(J.T @ J / len(J))


def _curvature(net: Solution, i: int) -> Array:
    """Return ∇²f(x_i), which is what the label moves the Hessian of ½(f − y)² by."""
    x, y = net.data.x_train[i : i + 1], net.data.y_train[i : i + 1]
    one, other = (
        Solution(net.arch, net.params, from_arrays(x, labels)).hessian("half_mse")
        for labels in (y, y - 1)
    )
    return np.asarray(other - one)


@claim("wu2025.trG_closed_form", "Two-layer networks without bias", "identity",
       "For x uniform on the sphere of radius √d: Tr G = ½Σ_j (‖w_j‖² + d a_j²)",
       note="The slide leaves γ_1 and γ_2 open; by the symmetry x → −x both are "
       "½.")  # fmt: skip
def closed_form(trial: Trial) -> Lines:
    for d in (3, 10):

        def density(t: float, d: int = d) -> float:
            return float((1 - t**2) ** ((d - 3) / 2))

        total = integrate.quad(density, -1, 1)[0]
        one = integrate.quad(lambda t, d=d: d * t**2 * density(t), 0, 1)[0] / total
        two = integrate.quad(density, 0, 1)[0] / total
        yield equal(f"γ_1 = E σ(x_1)², by quadrature, d = {d}", one, 0.5, rel=1e-7)
        yield equal(f"γ_2 = E σ'(x_1)², by quadrature, d = {d}", two, 0.5, rel=1e-7)
    rng, d = trial.rng("trG"), 8
    W1, W2 = _heavy(rng, 12, d)
    frame = math.sqrt(d) * np.linalg.qr(rng.normal(size=(d, d)))[0]
    x = np.vstack([frame, -frame])  # pairs ±x with mean xxᵀ = I: the mean over the sphere, exactly
    data = random_data(rng, 2 * d, d)
    net = Solution(TwoLayer(width=12, bias=False), {"W1": W1, "W2": W2}, data)
    truth = weighted_norm(W1, W2, d) / 2
    mean = np.mean(np.sum(net.gradients(x) ** 2, 1))
    yield equal(f"12 neurons, d = {d}, autograd: mean over ± an orthogonal frame", mean, truth)
    points = _sphere(rng, trial.size(20_000, 400_000), d)
    squares = np.sum(gradients(W1, W2, points) ** 2, 1)
    yield estimate(f"mean of ‖∇f‖² over {len(points)} points, over the formula", squares / truth,
                   1.0, sigmas=4.5)  # fmt: skip


def _sphere(rng: np.random.Generator, n: int, d: int) -> Array:
    x = rng.normal(size=(n, d))
    return np.asarray(x * (math.sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True)))


def _heavy(rng: np.random.Generator, m: int, d: int) -> tuple[Array, Array]:
    """Return m neurons whose two layers are scaled by factors from 1/30 to 30."""
    W1 = rng.normal(size=(m, d)) * 10 ** rng.uniform(-1.5, 1.5, (m, 1))
    return W1, rng.normal(size=m) * 10 ** rng.uniform(-1.5, 1.5, m)


@claim("wu2025.thm2_norm_equivalence", "Theorem 2 (norms)", "rate",
       "With N_q = Σ_j (‖w_j‖² + q a_j²): Tr G ~ N_d and ‖G‖_F ~ N_{√d} for n ≳ N(d, δ), and ‖G‖_2 "
       "~ N_1 for n ≳ d N(d, δ)",
       as_printed="‖θ‖_{2,q} is defined with a root, √N_q", errata=("W9",),
       note="At n = ∞ the ratios lie in intervals that depend on nothing but d, and tend to [½, "
       "½], [1/9, ½] and [1/6, ½] or so: see theory/weighted_norms.py.")  # fmt: skip
def norm_equivalence(trial: Trial) -> Lines:
    rng = trial.rng("thm2")
    W1, W2 = _heavy(rng, 8, 5)
    x = _sphere(rng, 200, 5)
    grown = [np.sum(gradients(c * W1, c * W2, x) ** 2) for c in (1, 2)]
    norm = [weighted_norm(c * W1, c * W2, 5) for c in (1, 2)]
    factor = math.log2(grown[1] / grown[0])
    yield equal("homogeneity of Tr G in θ", factor, 2)
    yield printed(equal("that of the norm", math.log2(norm[1] / norm[0]) / 2, factor))
    yield equal("that of the norm, without the root", math.log2(norm[1] / norm[0]), factor)
    for d in (5, 10, 20):
        c = limits(d)
        found, n = [], 100 * d
        for m in (1, 4, 20):
            for _ in range(trial.size(6, 60)):
                W1, W2 = _heavy(rng, m, d)
                found.append(ratios(W1, W2, _sphere(rng, n, d)))
        # Relative fluctuation of a quadratic form, uniformly over half-spaces and directions.
        u = math.sqrt(d * math.log(n) / n)
        what = f"d = {d}, n = 100 d, {len(found)} networks of 1, 4, 20 neurons"
        for name, of in (("trace", "Tr G/N_d"), ("frobenius", "‖G‖_F/N_√d"),
                         ("operator", "‖G‖_2/N_1")):  # fmt: skip
            values = [getattr(each, name) for each in found]
            yield at_least(f"{what}: least {of}", min(values), c[name][0] * (1 - u) ** 2)
            yield at_most("largest", max(values), c[name][1] * (1 + u) ** 2)
    sizes, deviations = (20, 80, 320, 1280), []
    for n in sizes:
        count, W1 = trial.size(400, 4000), np.ones((1, 1))
        off = []
        for _ in range(count):
            w, a = 10 ** rng.uniform(-1, 1, 2)
            first = _sphere(rng, n, 5)[:, :1]  # one neuron sees x_1 alone
            trace = np.mean(w**2 * np.maximum(first, 0) ** 2 + 5 * a**2 * (first > 0))
            off.append(trace / weighted_norm(w * W1, np.array([a]), 5) - 0.5)
        deviations.append(math.sqrt(np.mean(np.square(off))))
    yield slope("one neuron, d = 5: exponent in n of the deviation of Tr G/N_d from ½", sizes,
                deviations, near=-0.5, within=0.15)  # fmt: skip
    w, a, d = 1.5, 0.7, 6
    far = ratios(w * np.eye(1, d), np.array([a]), _sphere(rng, 20_000, d))
    near = single_neuron(w, a, d)
    quotient = far.frobenius / near.frobenius
    yield equal("one neuron, n = 20,000: ‖G‖_F over its closed form", quotient, 1, rel=0.1)
    yield equal("‖G‖_2 over its closed form", far.operator / near.operator, 1, rel=0.2)


@claim("wu2025.N_d_delta", "Theorem 2 (norms)", "rate",
       "N(d, δ) = inf{n: d log(n/δ) ≤ n} grows like d log(d/δ): their ratio lies between 1 and "
       "e/(e − 1), but for rounding up")  # fmt: skip
def enough(trial: Trial) -> Lines:
    quotients, wrong = [], 0
    scales, values = [], []
    for d in (3, 10, 100, 10**4, 10**6):
        for delta in (0.5, 0.1, 1e-3, 1e-6):
            n = enough_examples(d, delta)
            wrong += d * math.log(n / delta) > n or d * math.log((n - 1) / delta) <= n - 1
            scale = d * math.log(d / delta)
            quotients.append(((n - 1) / scale, n / scale))
            scales.append(scale)
            values.append(n)
    yield equal("20 pairs (d, δ) whose N is not the least solution", wrong, 0)
    yield at_least("least N/(d log(d/δ))", min(high for _, high in quotients), 1)
    top = max(low for low, _ in quotients)
    yield at_most("largest (N − 1)/(d log(d/δ))", top, math.e / (math.e - 1))
    yield slope("exponent of N in d log(d/δ)", scales, values, near=1, within=0.05)


@claim("wu2025.path_norm", "Flatness implies generalisation", "inequality",
       "Σ_j (‖w_j‖² + q a_j²) ≥ 2√q Σ_j |a_j|‖w_j‖, with equality if and only if ‖w_j‖ = √q |a_j|",
       as_printed="The same for ‖θ‖_{2,q}, which is defined with a root",
       errata=("W9",))  # fmt: skip
def path_norm(trial: Trial) -> Lines:
    one = np.array([[10.0]]), np.array([10.0])
    what = "one neuron, w = a = 10, q = 1"
    yield printed(at_least(what, math.sqrt(weighted_norm(*one, 1)), 200))
    yield at_least(what, weighted_norm(*one, 1), 200)
    rng, least, equality, unequal = trial.rng("path-norm"), math.inf, [], math.inf
    count = trial.size(1000, 20_000)
    for _ in range(count):
        d, q = int(rng.integers(1, 10)), float(10 ** rng.uniform(-2, 2))
        W1, W2 = _heavy(rng, int(rng.integers(1, 10)), d)
        sizes = np.linalg.norm(W1, axis=1)
        path = 2 * math.sqrt(q) * float(np.abs(W2) @ sizes)
        least = min(least, weighted_norm(W1, W2, q) / path)
        even = sizes / math.sqrt(q)
        equality.append(weighted_norm(W1, even, q) / (2 * math.sqrt(q) * float(even @ sizes)) - 1)
        off = even * 10 ** rng.uniform(0.01, 1, len(even))
        unequal = min(unequal, weighted_norm(W1, off, q) / (2 * math.sqrt(q) * float(off @ sizes)))
    yield at_least(f"{count} random networks: least left over right", least, 1)
    yield near_zero("the same less 1 where ‖w_j‖ = √q |a_j|", equality, 1e-12)
    yield above("least where ‖w_j‖ differs from it by 2 % or more", unequal, 1 + 1e-5)


@claim("wu2025.thm3_flatness_generalises", "Theorem 3 (flatness)", "rate",
       "An interpolating θ has E|f − f*|² ≲ (Tr² G/n) polylog(n, 1/δ) if n ≥ N(d, δ) and |f*| ≤ 1",
       as_printed="poly(n, 1/δ) in the place of polylog(n, 1/δ)", errata=("W10",),
       note="Tried on two families of interpolating networks, so the rate can be refuted, not "
       "proved.")  # fmt: skip
def flatness_generalises(trial: Trial) -> Lines:
    rng, d = trial.rng("thm3"), 5
    sizes = trial.size((50, 100, 200, 400), (50, 100, 200, 400, 800, 1600))
    units = _sphere(rng, 3, d) / math.sqrt(d)
    signs = np.array([1.0, -1.0, 1.0]) / (3 * math.sqrt(d))  # |f*| ≤ 1 as σ(u·x) ≤ √d

    def teacher(x: Array) -> Array:
        return np.asarray(np.maximum(x @ units.T, 0) @ signs)

    for noisy in (False, True):
        quotients = []
        for n in sizes:
            error, trace, misfit = np.mean(
                [_interpolating(rng, teacher, n, d, noisy) for _ in range(2)], axis=0
            )
            quotients.append(error / trace**2)
        name = "that also fit n wrong labels elsewhere" if noisy else "of least norm"
        what = f"random features {name}, n = {sizes[-1]}"
        yield near_zero(f"{what}: largest |f − y|", misfit, 1e-5)
        yield slope("exponent in n of E|f − f*|²/Tr² G", sizes, quotients, at_most=-0.7)
    many = (50, 200, 800, 3200, 12_800)
    W1, W2 = 3 * math.sqrt(d) * units, signs / (3 * math.sqrt(d))
    squares = [np.mean(np.sum(gradients(W1, W2, _sphere(rng, n, d)) ** 2, 1)) ** 2 for n in many]
    logs = np.array(squares) * np.log(many) ** 2 / many
    what = "f* itself, which interpolates: exponent in n of the right side"
    yield printed(slope(f"{what} with poly(n) = n", many, squares, at_most=-0.5))
    yield slope(f"{what} with polylog = log² n", many, logs, at_most=-0.5)


def _interpolating(
    rng: np.random.Generator, teacher: Callable[[Array], Array], n: int, d: int, noisy: bool
) -> tuple[float, float, float]:
    """Return E|f − f*|², Tr G and the largest misfit of random features of least norm, balanced.

    Noisy networks also fit n points with random labels ±1 that are not in the training set.
    """
    x = _sphere(rng, n, d)
    points, labels = x, teacher(x)
    if noisy:
        points = np.vstack([x, _sphere(rng, n, d)])
        labels = np.concatenate([labels, rng.choice([-1.0, 1.0], n)])
    units = _sphere(rng, 4 * len(points), d) / math.sqrt(d)
    features = np.maximum(points @ units.T, 0)
    c = features.T @ np.linalg.solve(features @ features.T, labels)
    far = _sphere(rng, 2000, d)
    error = float(np.mean((np.maximum(far @ units.T, 0) @ c - teacher(far)) ** 2))
    size = np.sqrt(np.abs(c) * math.sqrt(d))  # ‖w_j‖ = √d |a_j|, the least trace
    trace = float(np.mean(np.sum(_squares(size[:, None] * units, size / math.sqrt(d), x), 1)))
    return error, trace, float(np.max(np.abs(features @ c - labels)))


def _squares(W1: Array, W2: Array, x: Array) -> Array:
    """Return the share of each neuron in ‖∇f(x)‖²."""
    h = x @ W1.T
    return np.asarray(np.maximum(h, 0) ** 2 + (h > 0) * W2**2 * np.sum(x**2, 1)[:, None])
