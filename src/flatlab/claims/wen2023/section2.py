"""Section 2: complexity, data, losses, architectures, and the two faces of sharpness; Table 1."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from scipy.optimize import minimize

from ...data import cube, from_arrays, xor
from ...losses import Loss
from ...measures.average_sharpness import AverageSharpness
from ...models import Deep, Params, TwoLayer
from ...optim import SAM
from ...theory.constructions import four_neurons, memorising
from ...theory.rademacher import finite_class
from ...theory.solution import Array, Solution
from ..contract import Trial, by_experiment, claim, printed
from ..instances import (
    first_layer_times,
    measured,
    random_data,
    random_interpolator,
    random_network,
)
from ..lines import Lines, above, at_least, at_most, equal, estimate, near_zero, shown, slope, true

XOR = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


@claim("wen2023.def.rademacher", "Section 2 and Definition A.6", "definition",
       "R_S(F) = (1/n) E_ε sup_{f∈F} Σ ε_i f(x_i) over independent signs ε; it is 0 for one "
       "function, 1 for all sign patterns, scales with F and is that of F's convex "
       "hull")  # fmt: skip
def rademacher(trial: Trial) -> Lines:
    n, size, draws = 8, 50, trial.size(100_000, 1_000_000)
    rng = trial.rng("rademacher")
    F = rng.normal(size=(size, n))
    exact, sampled = finite_class(F).value, finite_class(F, draws=draws, rng=rng)
    off = abs(sampled.value - exact) / sampled.standard_error
    yield at_most(f"50 functions: |sampled − enumerated|/s.e., {draws:,} draws", off, 4.5)
    yield near_zero("one function", finite_class(F[:1]).value, 1e-12)
    yield equal("all sign patterns on 8 points", finite_class(cube(n)).value, 1.0)
    constants = finite_class(np.array([[1.0], [-1.0]]) * np.ones(n)).value
    yield equal("the two constants ±1: C(8,4)/2^8", constants, math.comb(n, n // 2) / 2**n)
    yield equal("R(3F)/R(F)", finite_class(3 * F).value / exact, 3.0)
    hull = rng.dirichlet(np.full(size, 0.1), 500) @ F
    yield equal("R of F and 500 of its mixtures", finite_class(np.vstack([F, hull])).value, exact)
    yield above("R(F ∪ −F)/R(F)", finite_class(np.vstack([F, -F])).value / exact, 1.0)


@claim("wen2023.data.pxor", "Section 2", "definition",
       "x uniform on {±1}^d, y = x1 x2: E x = 0, E xxᵀ = I, ‖x‖² = d, and y is uncorrelated with "
       "every product of coordinates but x1 x2")  # fmt: skip
def pxor(trial: Trial) -> Lines:
    data = xor(d=6, n=20, exact_test=True)
    x, y = data.x_test, data.y_test
    yield equal("points of the cube, d=6, all different", len(np.unique(x, axis=0)), 64)
    yield near_zero("largest |E x_j|", x.mean(0), 0)
    yield near_zero("largest entry of |E xxᵀ − I|", x.T @ x / 64 - np.eye(6), 0)
    subsets = [each for size in range(7) for each in itertools.combinations(range(6), size)]
    products = {each: float(np.mean(y * np.prod(x[:, list(each)], 1))) for each in subsets}
    yield equal("E y x1 x2", products.pop((0, 1)), 1.0)
    yield near_zero("largest |E y Π x_j| over the 63 other products", list(products.values()), 0)
    seed = int(trial.rng("pxor").integers(2**31))
    drawn = xor(d=30, n=4000, seed=seed, n_test=0)
    yield near_zero("d=30: |‖x‖² − d| of 4,000 drawn points", np.sum(drawn.x_train**2, 1) - 30, 0)
    yield at_most("largest |mean of x_j| √n of them: 5 standard errors",
                  math.sqrt(4000) * np.max(np.abs(drawn.x_train.mean(0))), 5.0)  # fmt: skip


@claim("wen2023.loss.zero_one", "Section 2 and the remark after Theorem 3.1", "definition",
       "The zero-one loss is Pr(y f(x) ≤ 0); f = 0 counts as an error, so that a network that is "
       "zero off its n distinct training points has error 1 − n/2^d",
       as_printed="the zero-one loss is Pr(y f(x) > 0)", errata=("E5",))  # fmt: skip
def zero_one(trial: Trial) -> Lines:
    n, d = 17, 6
    seed = int(trial.rng("zero-one").integers(2**31))
    data = xor(d=d, n=n, seed=seed, distinct=True, exact_test=True)
    perfect, memory = four_neurons(data), memorising(data)
    nets = (perfect, memory)
    right = [float(np.mean(net.outputs(data.x_test) * data.y_test > 0)) for net in nets]
    yield near_zero("Pr(yf ≤ 0) of eq. (5)'s network, d=6, all 64 points", perfect.error(), 0)
    yield equal("Pr(yf ≤ 0) of the memorising network of 17 points", memory.error(), 1 - n / 2**d)
    yield printed(near_zero("the loss Pr(yf > 0) of eq. (5)'s network", right[0]))
    yield printed(equal("the same of the memorising network", right[1], 1 - n / 2**d))


@claim("wen2023.def2.1", "Definition 2.1", "definition",
       "A model interpolates if f(x_i) = y_i for all i, which is L = 0; a minimiser of L is "
       "interpolating only if L can reach 0, which on the four xor points two neurons cannot and "
       "three can",
       note="The text calls minimisers of L interpolating, too.")  # fmt: skip
def interpolating(trial: Trial) -> Lines:
    rng = trial.rng("def2.1")
    exact, agree = 0, 0
    for index in range(100):
        data = random_data(rng, 10, 4)
        net = random_interpolator(rng, TwoLayer(width=30), data)
        if index % 2:
            net = net.with_params(W2=net.params["W2"] + 1e-3 * rng.normal(size=30))
        fits = bool(np.max(np.abs(net.outputs() - data.y_train)) < 1e-9)
        exact += fits
        agree += fits == (net.loss() < 1e-18)
    yield equal("of 100 networks (n=10, m=30, every other one moved): f = y ⇔ L = 0", agree, 100)
    yield equal("interpolating ones among them", exact, 50)
    starts = trial.size(12, 60)
    least = min(_least_loss(rng, 2) for _ in range(starts))
    yield above(f"least L of two neurons with bias on the xor points, {starts} starts", least, 0.1)
    three: Params = {
        "W1": np.array([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]),
        "b1": np.array([0.0, 0.0, 1.0]),
        "W2": np.array([1.0, 1.0, -1.0]),
    }
    points = from_arrays(XOR, XOR.prod(1))
    yield near_zero("L of |x1 + x2| − 1", Solution(TwoLayer(width=3), three, points).loss(), 0)


def _least_loss(rng: np.random.Generator, m: int) -> float:
    """Return the loss that L-BFGS reaches on the four xor points from a random start."""
    x = torch.tensor(XOR)
    y = x.prod(1)

    def value(flat: Array) -> tuple[float, Array]:
        theta = torch.tensor(flat, requires_grad=True)
        W1, b1, W2 = theta[: 2 * m].view(m, 2), theta[2 * m : 3 * m], theta[3 * m :]
        loss = Loss("mse").torch(torch.relu(x @ W1.T + b1) @ W2, y)
        (gradient,) = torch.autograd.grad(loss, theta)
        return float(loss.detach()), gradient.numpy()

    found = minimize(value, rng.normal(size=4 * m), jac=True, method="L-BFGS-B")
    return float(found.fun)


table1 = by_experiment("wen2023.table1", "Table 1",
    "Whether all flattest minima and 1-SAM generalise on P_xor: no bias yes, yes; bias no, no; "
    "Sim-BN yes, yes; Sim-LN no, yes",
    note="The first column is Theorems 3.1, 4.1, 3.2 and 5.1, which have claims of their own. The "
    "caption has rows 2 and 4 deny Questions 1 and 2 respectively; by the text row 4 denies "
    "both.")  # fmt: skip


@claim("wen2023.arch.mlp", "Section 2", "definition",
       "f = W2 relu(W1 x) without and W2 relu(W1 x + b1) with bias; D layers have a bias in the "
       "first only. f does not change under (W1, b1)_j → c(W1, b1)_j, W2_j → W2_j/c, and a bias is "
       "a constant input")  # fmt: skip
def mlp(trial: Trial) -> Lines:
    rng = trial.rng("mlp")
    data, width = random_data(rng, 40, 6), 15
    far = rng.normal(size=(200, 6))
    bias = random_network(rng, TwoLayer(width=width), data)
    W1, b1, W2 = (bias.params[name] for name in ("W1", "b1", "W2"))
    by_hand = np.maximum(far @ W1.T + b1, 0) @ W2
    yield near_zero("d=6, m=15: |f − W2 relu(W1x + b1)|", bias.outputs(far) - by_hand, 1e-12)
    c = np.exp(rng.normal(size=width))
    scaled = bias.with_params(W1=c[:, None] * W1, b1=c * b1, W2=W2 / c)
    yield near_zero("change of f when neurons are rescaled", scaled.outputs(far) - by_hand, 1e-12)
    longer = from_arrays(np.hstack([data.x_train, np.ones((data.n, 1))]), data.y_train)
    params = {"W1": np.hstack([W1, b1[:, None]]), "W2": W2}
    folded = Solution(TwoLayer(width=width, bias=False), params, longer)
    longer_f = folded.outputs(np.hstack([far, np.ones((200, 1))]))
    yield near_zero("largest |f_bias(x) − f_nobias(x, 1)|", longer_f - by_hand, 1e-12)
    for depth in (3, 5):
        deep = random_network(rng, Deep(depth=depth, width=width), data)
        u = np.maximum(far @ deep.params["W1"].T + deep.params["b1"], 0)
        for layer in range(2, depth):
            u = np.maximum(u @ deep.params[f"W{layer}"].T, 0)
        yield near_zero(f"D={depth}: largest |f − W_D relu ⋯ relu(W1 x + b1)|",
                        deep.outputs(far) - u @ deep.params[f"W{depth}"], 1e-12)  # fmt: skip


@claim("wen2023.arch.simbn", "Section 2, 2-MLP-Sim-BN", "definition",
       "SBN(u)[j] = γ_j u[j]/(Σ_i u_i[j]²/n)^{1/2} with one γ_j a neuron: neurons have mean square "
       "γ_j², f ignores the scale of each row of (W1, b1), and (2/n)Σ‖∇_{γ,W2} f‖² = 2(‖W2‖² + "
       "‖γ‖²)",
       as_printed="γ is one number for all neurons (the appendix uses γ[j])", errata=("E16",),
       note="A neuron that is zero on the training set is 0/0 in the formula; here it is "
       "0.")  # fmt: skip
def simbn(trial: Trial) -> Lines:
    rng = trial.rng("simbn")
    data, m = random_data(rng, 30, 6), 10
    net = random_network(rng, TwoLayer(width=m, norm="batch"), data)
    W1, b1, W2, gamma = (net.params[name] for name in ("W1", "b1", "W2", "gamma"))
    units = np.eye(m)
    squares = [np.mean(net.with_params(gamma=np.ones(m), W2=unit).outputs() ** 2) for unit in units]
    yield near_zero("d=6, n=30, m=10: (1/n)Σ SBN_1(u_i)[j]² − 1", np.array(squares) - 1, 1e-12)
    c = np.exp(rng.normal(size=m))
    scaled = net.with_params(W1=c[:, None] * W1, b1=c * b1)
    far = rng.normal(size=(200, 6))
    moved = scaled.outputs(far) - net.outputs(far)
    yield near_zero("largest change of f when each row of (W1, b1) is scaled", moved, 1e-12)
    before, after = net.gradients(), scaled.gradients()
    rows = np.concatenate([np.repeat(c, 6), c])
    yield near_zero("largest |c ∂f/∂(W1, b1) after − before|: degree −1",
                    rows * after[:, : 7 * m] - before[:, : 7 * m], 1e-10)  # fmt: skip
    of_W2, of_gamma = before[:, 7 * m : 8 * m], before[:, 8 * m :]
    both = 2 * np.mean(np.sum(of_W2**2, 1) + np.sum(of_gamma**2, 1))
    yield equal("(2/n)Σ‖∇_{γ,W2} f‖², γ a vector", both, 2 * float(W2 @ W2 + gamma @ gamma))
    scalar = net.with_params(gamma=np.full(m, gamma[0])).gradients()
    shared = np.sum(scalar[:, 7 * m : 8 * m] ** 2, 1) + np.sum(scalar[:, 8 * m :], 1) ** 2
    tied = 2 * float(W2 @ W2 + gamma[0] ** 2)
    yield printed(equal("the same with one γ for all neurons", 2 * np.mean(shared), tied))
    dead = net.with_params(W1=np.zeros_like(W1), b1=-np.ones(m))
    yield near_zero("f on 200 points where every neuron is dead", dead.outputs(far))


@claim("wen2023.arch.simln", "Section 2, 2-MLP-Sim-LN", "definition",
       "f = W2 h/max(‖h‖, ε) with h = relu(W1 x + b1): where ‖h‖ > ε it ignores a common scale of "
       "(W1, b1) and ‖∇_{W2} f‖ = 1; where ‖h‖ ≤ ε it is the plain network divided by ε",
       note="f has no derivative where ‖h‖ = ε.")  # fmt: skip
def simln(trial: Trial) -> Lines:
    rng = trial.rng("simln")
    data, m = random_data(rng, 60, 6), 12
    net = random_network(rng, TwoLayer(width=m, norm="layer", ln_epsilon=1e-3), data)
    alive = np.linalg.norm(net.hidden()[0], axis=1) > 1e-2
    yield true(f"d=6, m=12: ‖h‖ > 10ε at {alive.sum()} of 60 points", alive.sum() >= 20)
    scaled = first_layer_times(7.3, net)
    yield near_zero("f after (W1, b1) times 7.3", (scaled.outputs() - net.outputs())[alive], 1e-12)
    of_W2 = net.gradients()[alive][:, 7 * m :]
    yield near_zero("largest |‖∇_{W2} f‖² − 1|", np.sum(of_W2**2, 1) - 1, 1e-12)
    small = Solution(TwoLayer(width=m, norm="layer", ln_epsilon=100.0), net.params, data)
    plain = Solution(TwoLayer(width=m), net.params, data)
    yield near_zero("ε = 100 > ‖h‖: |f − W2 h/ε|", small.outputs() - plain.outputs() / 100, 1e-14)
    yield near_zero("and of the gradients", small.gradients() - plain.gradients() / 100, 1e-14)


@claim("wen2023.sharpness.gaussian", "Section 2, Sharpness", "identity",
       "Tr ∇²L is the expected rise of the loss under Gaussian noise: 2 E[L(θ+ρz) − L(θ)]/ρ² → Tr "
       "∇²L as ρ → 0, with an error of order ρ²",
       note="The third order vanishes by symmetry; ReLU kinks are excluded (tanh "
       "here).")  # fmt: skip
def gaussian(trial: Trial) -> Lines:
    """Sample in pairs ±z; subtract z'∇²L z, whose mean is known, to show the error of order ρ²."""
    rng = trial.rng("gaussian")
    data = random_data(rng, 8, 3)
    net = random_interpolator(rng, TwoLayer(width=12, activation="tanh"), data)
    hessian, trace = net.hessian(), net.trace
    yield equal("tanh, p=60, n=8: Tr of the dense Hessian", np.trace(hessian), trace, rel=1e-8)
    pairs, radii = trial.size(20_000, 200_000), (0.02, 0.01, 0.005, 0.0025)
    z = rng.normal(size=(pairs, 60))
    rises = {rho: _rises(net, rho * z) * 2 / rho**2 for rho in radii}
    extrapolated = (4 * rises[0.005] - rises[0.01]) / 3
    yield estimate(f"2 E ΔL/ρ² from ρ = 0.01 and 0.005, {pairs:,} pairs", extrapolated, trace)
    quadratic = np.einsum("ki,ij,kj->k", z, hessian, z, optimize=True)
    errors = [abs(float(np.mean(rises[rho] - quadratic))) for rho in radii]
    yield slope("exponent of the error over ρ = 0.02, 0.01, 0.005, 0.0025", radii, errors, near=2.0)
    sigma = 0.005
    average = AverageSharpness(sigma=sigma, tolerance=0.02, max_products=2000)
    found = measured(average, net, trial.seed)
    off = abs(float(found.value) - trace * sigma**2 / 2) / float(found.stderr)
    yield at_most("|2 S_σ/σ² − Tr| of flatlab's average sharpness, in standard errors", off, 4.5)


def _rises(net: Solution, steps: Array) -> Array:
    """Return (L(θ+δ) + L(θ−δ))/2 − L(θ) for every row δ."""
    parameters = {name: p.detach() for name, p in net.module.named_parameters()}
    sizes = [p.numel() for p in parameters.values()]
    x, y = torch.tensor(net.data.x_train), torch.tensor(net.data.y_train)

    def loss(delta: torch.Tensor) -> torch.Tensor:
        parts = zip(parameters.items(), torch.split(delta, sizes), strict=True)
        moved = {name: p + part.view_as(p) for (name, p), part in parts}
        f: torch.Tensor = torch.func.functional_call(net.module, moved, (x,))
        return Loss("mse").torch(f, y)

    many = torch.func.vmap(loss, chunk_size=5000)
    delta = torch.tensor(steps)
    mean = (many(delta) + many(-delta)) / 2
    return np.asarray(mean) - net.loss()


@claim("wen2023.sharpness.1sam", "Section 2, Sharpness", "identity",
       "At interpolation ∇²L_i = 2∇f_i∇f_iᵀ has rank one, so the mean over examples of "
       "λ_max(∇²L_i), which SAM with batch size 1 reduces, is Tr ∇²L; on L = (aw − 1)² 1-SAM "
       "drifts along aw = 1 to a = w, where Tr = 2(a² + w²) is least",
       note="That 1-SAM minimises the trace in general is a limit η, ρ → 0 of a cited "
       "theorem.")  # fmt: skip
def one_sam(trial: Trial) -> Lines:
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
    yield near_zero("n=8, d=5, m=12: other |eigenvalue| of ∇²L_i/λ_max", rest / top.max(), 1e-9)
    yield equal("mean of λ_max(∇²L_i) against Tr of the dense ∇²L", top.mean(), whole, rel=1e-8)
    yield equal("and against (2/n)Σ‖∇f‖²", top.mean(), net.trace, rel=1e-8)
    steps = trial.size(1000, 20_000)
    start = (2.0, 0.505)  # off the manifold: on it the gradient is zero and SAM does not move
    yield shown("(aw − 1)² from a = 2, w = 0.505: Tr on the manifold nearby", 8.5)
    trace, product = _sam_on_toy(start, 0.2, steps)
    yield at_most(f"2(a² + w²) after {steps:,} steps of 1-SAM (lr 0.05, ρ 0.2)", trace, 4.1)
    yield near_zero("|aw − 1| there", product - 1, 0.05)
    yield at_least("the same with ρ = 0", _sam_on_toy(start, 0.0, steps)[0], 8.4)


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
