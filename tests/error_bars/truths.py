"""What a reading should be: the true value of every measure, from the oracle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .climbing import Region, highest_rise
from .oracle import Array, Oracle
from .problems import OTHER_MATRICES, SEARCHES

# A mean under noise is drawn until its own error is this small a part of the reading's.
FINER = 0.1
# Pairs drawn together and in all: of small networks and of wide ones, which need a product each.
# Batches: all of them up to the first number, otherwise drawn, that many at a time.
EVERY_BATCH, MOST_BATCHES = 2000, 20_000
DRAWS = {False: (256, 4096), True: (32, 256)}

# The second-moment operator is formed whole where all curved directions are at most this many.
SPAN = 30


@dataclass(frozen=True)
class Truth:
    """A true value.

    Attributes:
        value: The value.
        scale: The size of what it is computed from, such as the matrix's spectral norm.
        error: Its own standard error, where it is a mean over draws.
    """

    value: float | Array
    scale: float
    error: float = 0.0


@dataclass(frozen=True)
class Peak:
    """The largest rise that was found: for measures that search.

    Attributes:
        own: By this test alone.
        best: By this test, or at the step that the reading names.
        size: 1 + L, the size of what the rise is a difference of.
    """

    own: float
    best: float
    size: float


def truth_of(oracle: Oracle, name: str, reading: Any) -> Truth | Peak | None:
    """Return the truth about a reading, or None where there is none at hand."""
    name = name.partition(":")[0]
    if name in SEARCHES:
        return _peak(oracle, name, reading)
    if name in _OTHERS:
        return _OTHERS[name](oracle, reading)
    kind = matrix_of(name)
    plain = name.removeprefix(f"{kind}_")
    value = _OF_MATRICES[plain](oracle, kind, reading)
    # A density is compared with its peak: its units are those of one over the eigenvalues.
    return Truth(value, float(np.max(value)) if plain == "spectrum" else oracle.scale(kind))


def matrix_of(name: str) -> str:
    """Return the matrix that a measure is of."""
    head = name.partition("_")[0]
    return head if head in OTHER_MATRICES else "hessian"


def _density(oracle: Oracle, kind: str, reading: Any) -> Array:
    grid, sigma = reading.details["grid"], float(reading.details["sigma"])
    values, counts = np.unique(oracle.eigenvalues(kind), return_counts=True)
    bumps = np.exp(-(((grid[:, None] - values) / sigma) ** 2) / 2) @ (counts / counts.sum())
    return np.asarray(bumps / (sigma * math.sqrt(2 * math.pi)))


def _by_layer(
    measure: Callable[[Oracle, str, Any], float],
) -> Callable[[Oracle, str, Any], Array]:
    def found(oracle: Oracle, kind: str, reading: Any) -> Array:
        blocks = oracle.blocks(reading.labels)
        return np.array([measure(oracle, kind, block) for block in blocks])

    return found


_OF_MATRICES: dict[str, Callable[[Oracle, str, Any], float | Array]] = {
    "trace": lambda o, kind, r: float(o.diagonal(kind).sum()),
    "lambda_max": lambda o, kind, r: float(o.top(kind, 1)[0]),
    "lambda_min": lambda o, kind, r: o.bottom(kind),
    "top_k": lambda o, kind, r: o.top(kind, len(r.value)),
    "frobenius": lambda o, kind, r: o.frobenius(kind),
    "spectrum": _density,
    "diagonal": lambda o, kind, r: o.diagonal(kind),
    "layer_trace": _by_layer(lambda o, kind, block: float(o.diagonal(kind)[block].sum())),
    "layer_lambda_max": _by_layer(lambda o, kind, block: o.block_top(kind, block)),
}


def _one_step(oracle: Oracle, reading: Any) -> Truth:
    size = float(oracle.gradient.norm())
    if size == 0:
        return Truth(0.0, oracle.loss)
    step = reading.card.settings["rho"] * oracle.gradient / size
    there = float(oracle.values(step[None])[0])
    return Truth(max(0.0, there - oracle.loss), max(there, oracle.loss))


def _norm(oracle: Oracle, reading: Any) -> Truth:
    value = float(oracle.theta.norm())
    return Truth(value, value)


def _start(oracle: Oracle) -> Tensor:
    reference = oracle.problem.options["reference"]
    return torch.cat([reference[name].double().flatten() for name in oracle.params])


def _distance(oracle: Oracle, reading: Any) -> Truth:
    return Truth(float((oracle.theta - _start(oracle)).norm()), float(oracle.theta.norm()))


def _chain(oracle: Oracle) -> list[nn.Linear] | None:
    """Return the layers of an MLP without normalisation; None for other networks."""
    model = oracle.model
    if not isinstance(model, nn.Sequential):
        return None
    layers = [module for module in model if isinstance(module, nn.Linear)]
    others = [module for module in model if not isinstance(module, nn.Linear)]
    if any(list(module.parameters()) for module in others):
        return None
    return layers


def _rows(layer: nn.Linear) -> Tensor:
    squared = layer.weight.square().sum(1)
    return (squared if layer.bias is None else squared + layer.bias.square()).sqrt()


def _path_norm(oracle: Oracle, reading: Any) -> Truth | None:
    layers = _chain(oracle)
    if layers is None:
        return None
    v = _rows(layers[0])
    for layer in layers[1:]:
        v = layer.weight.abs() @ v
        v = v if layer.bias is None else v + layer.bias.abs()
    return Truth(float(v.sum()), float(v.sum()))


def _weighted_norm(oracle: Oracle, reading: Any) -> Truth | None:
    layers = _chain(oracle)
    if layers is None:
        return None
    first, second = layers
    value = float(_rows(first).square().sum())
    value += first.in_features * float(second.weight.square().sum())
    return Truth(value, value)


def _fisher_rao(oracle: Oracle, reading: Any) -> Truth:
    each = oracle.example_gradients @ oracle.theta
    value = float(each.square().mean().sqrt())
    return Truth(value, value)


def _input_gradient(oracle: Oracle, reading: Any) -> Truth:
    slopes = torch.func.vmap(torch.func.grad(oracle.example, argnums=1), in_dims=(None, 0, 0))(
        oracle.theta, oracle.x, oracle.y
    )
    value = float(slopes.flatten(1).norm(dim=1).mean())
    return Truth(value, float(oracle.slopes.norm(dim=1).max()))


def _margin(oracle: Oracle, reading: Any) -> Truth:
    f, y = oracle.f, oracle.y
    if f.shape[1] == 1:
        each = f[:, 0] * torch.where(y[:, 0] > 0.5, 1.0, -1.0)
    else:
        own = y if y.ndim == 1 else y.argmax(1)
        rows = []
        for out, label in zip(f.tolist(), own.tolist(), strict=True):
            rows.append(out[label] - max(v for k, v in enumerate(out) if k != label))
        each = torch.tensor(rows, dtype=torch.float64)
    return Truth(float(each.min()), float(f.abs().max()))


def _nonuniformity(oracle: Oracle, reading: Any) -> Truth:
    value = float(np.linalg.eigvalsh(oracle.spread_of_hessians())[-1])
    return Truth(value, value)


def _alignment(oracle: Oracle, reading: Any) -> Truth:
    mixed, noise, gram = oracle.noise_moments()
    power = float(oracle.slopes.square().sum(1).mean())
    with np.errstate(divide="ignore", invalid="ignore"):  # without noise α is not defined
        alpha = np.float64(mixed) / np.sqrt(np.float64(noise * gram))
        beta = np.sqrt(np.float64(noise) / gram) / power
        return Truth(np.array([alpha, beta, mixed / (gram * np.float64(power))]), 1.0)


def _second_moment_radius(oracle: Oracle, reading: Any) -> Truth | None:
    """Return the top of the whole operator on pairs of coordinates, where it is small enough."""
    bends, J = oracle.bends, oracle.jacobian
    n, settings = oracle.n, reading.card.settings
    each = torch.einsum("icp,icd,idq->ipq", J, bends, J).numpy()
    values, vectors = torch.linalg.eigh(bends)
    roots = values.abs().sqrt()[:, :, None] * (vectors.transpose(1, 2) @ J)
    _, sizes, axes = np.linalg.svd(roots.flatten(0, 1).numpy(), full_matrices=False)
    curved = axes[sizes > 1e-5 * sizes[0]].T
    if not 0 < curved.shape[1] <= SPAN:
        return None
    inside = [curved.T @ G @ curved for G in each]
    H, unit = sum(inside) / n, np.eye(curved.shape[1])
    B, lr = settings["batch_size"], settings["lr"]
    noise = 1 / B if settings["replacement"] else (n - B) / (B * max(n - 1, 1))
    variance = sum(np.kron(G - H, G - H) for G in inside) / n
    T = np.kron(unit - lr * H, unit - lr * H) + lr**2 * noise * variance
    top = float(np.linalg.eigvalsh((T + T.T) / 2)[-1])
    return Truth(top, max(top, 1.0))


def mean_rise(oracle: Oracle, scale: Tensor, wanted: float) -> tuple[float, float]:
    """Return E L(θ + scale ⊙ ξ) − L(θ) and its standard error, drawn until that is as wanted.

    The quadratic part is exact, from the Hessian's diagonal; only the rest is drawn, in pairs ±ξ.
    """
    random = np.random.default_rng([oracle.problem.seed, 18])
    known = 0.5 * float(oracle.diagonal("hessian") @ scale.square().numpy())
    size, most = DRAWS[oracle.problem.wide]
    found, error = np.zeros(0), math.inf
    while error > wanted and len(found) < most:
        steps = scale * torch.from_numpy(random.normal(size=(size, oracle.size)))
        pairs = (oracle.values(steps) + oracle.values(-steps)) / 2 - oracle.loss
        found = np.concatenate([found, pairs - oracle.quadratic(steps)])
        error = float(found.std(ddof=1)) / math.sqrt(len(found))
    return known + float(found.mean()), error


def _average(oracle: Oracle, reading: Any) -> Truth:
    scale = reading.card.settings["sigma"] * torch.ones_like(oracle.theta)
    value, error = mean_rise(oracle, scale, FINER * float(reading.stderr))
    return Truth(value, oracle.loss, error)


def _adaptive_average(oracle: Oracle, reading: Any) -> Truth:
    scale = reading.card.settings["sigma"] * oracle.theta.abs()
    value, error = mean_rise(oracle, scale, FINER * float(reading.stderr))
    return Truth(value, oracle.loss, error)


def _mcallester(oracle: Oracle, reading: Any) -> Truth:
    settings = reading.card.settings
    sigma, prior, n = settings["sigma"], settings["prior_sigma"], oracle.n
    rise = _average(oracle, reading)
    ratio = (sigma / prior) ** 2
    squared = float((oracle.theta - _start(oracle)).square().sum())
    kl = 0.5 * (oracle.size * (ratio - 1 - math.log(ratio)) + squared / prior**2)
    inside = (kl + math.log(2 * math.sqrt(n) / settings["delta"])) / (2 * n)
    value = oracle.loss + float(rise.value) + math.sqrt(inside)
    return Truth(value, value, rise.error)


def _preconditioned(oracle: Oracle, reading: Any) -> Truth:
    given = oracle.problem.options["preconditioner"]
    root = torch.cat([given[name].flatten() for name in oracle.params]).rsqrt().numpy()
    values = np.linalg.eigvalsh(root[:, None] * oracle.matrix("hessian") * root)
    return Truth(float(values[-1]), float(np.abs(values).max()))


def _batch_sharpness(oracle: Oracle, reading: Any) -> Truth | None:
    """Return the mean over batches, or None if this oracle rounds one of their gradients to 0."""
    n, size = oracle.n, reading.card.settings["batch_size"]
    if math.comb(n, size) <= EVERY_BATCH:
        every = torch.tensor(list(itertools.combinations(range(n), size)))
        found = oracle.curvatures_along(every)
        if np.isnan(found).any():
            return None
        return Truth(float(found.mean()), float(np.abs(found).max()))
    random = np.random.default_rng([oracle.problem.seed, 20])
    found, error = np.zeros(0), math.inf
    while error > FINER * float(reading.stderr) and len(found) < MOST_BATCHES:
        rows = np.argsort(random.random((EVERY_BATCH, n)), 1)[:, :size]
        found = np.concatenate([found, oracle.curvatures_along(torch.from_numpy(rows))])
        if np.isnan(found).any():
            return None
        error = float(found.std(ddof=1)) / math.sqrt(len(found))
    return Truth(float(found.mean()), float(np.abs(found).max()), error)


_OTHERS: dict[str, Callable[[Oracle, Any], Truth | None]] = {
    "sam_sharpness": _one_step,
    "parameter_norm": _norm,
    "distance": _distance,
    "path_norm": _path_norm,
    "weighted_norm": _weighted_norm,
    "fisher_rao": _fisher_rao,
    "input_gradient": _input_gradient,
    "margin": _margin,
    "nonuniformity": _nonuniformity,
    "alignment": _alignment,
    "second_moment_radius": _second_moment_radius,
    "average_sharpness": _average,
    "adaptive_average": _adaptive_average,
    "mcallester": _mcallester,
    "preconditioned_lambda_max": _preconditioned,
    "batch_sharpness": _batch_sharpness,
}


def _peak(oracle: Oracle, name: str, reading: Any) -> Peak:
    settings = reading.card.settings
    if name == "keskar":
        region = Region(settings["epsilon"] * (oracle.theta.abs() + 1), 1.0, True)
    else:
        ones = torch.ones_like(oracle.theta)
        scale = ones if name == "sam_sharpness_steps" else oracle.theta.abs()
        region = Region(scale, settings["rho"], name.endswith("_inf"))
    step = reading.details.get("step")
    known = None if step is None else torch.as_tensor(step).double()
    own, best = highest_rise(oracle, region, oracle.problem.seed, known)
    unit = 100 / (1 + oracle.loss) if name == "keskar" else 1.0
    return Peak(unit * own, unit * best, unit * (1 + oracle.loss))
