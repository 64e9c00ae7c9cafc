"""A seed → a random problem, and which measures to take of it.

Everything follows from the seed alone, so that a problem that fails can be repeated by itself.
"""

from __future__ import annotations

import contextlib
import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from . import losses, networks
from .networks import Random, choice

# One problem in this many has 40,000 parameters or more.
WIDE_EVERY = 60

MATRIX_MEASURES = (
    "trace", "lambda_max", "top_k", "frobenius", "spectrum", "diagonal", "layer_trace",
    "layer_lambda_max",
)  # fmt: skip
OTHER_MATRICES = ("ggn", "fisher", "gram")
# Exact by one or two passes: taken of every problem.
CHEAP = (
    "sam_sharpness", "parameter_norm", "distance", "path_norm", "weighted_norm", "fisher_rao",
    "input_gradient", "margin", "alignment",
)  # fmt: skip
# What larger problems get in place of an exact number: asked for by name. A small problem takes all
# of one of these two lists.
BOUNDED = tuple(
    f"{name}:method=lanczos" for name in ("lambda_max", "lambda_min", "top_k", "layer_lambda_max")
)
PROBED = tuple(f"{name}:method=probes" for name in ("trace", "frobenius", "layer_trace"))
# The second-moment operator of SGD: with little data only, as its truth is a dense matrix.
MOMENTS = (
    "second_moment_radius", "second_moment_radius:lr=0.01,batch_size=5,replacement=True",
    "second_moment_radius:lr=1.0,batch_size=2",
)  # fmt: skip
# These cost the most: one of them is taken.
LONG = ("diagonal:method=probes", "spectrum:method=lanczos", "alignment:exact=false")
# Their truth is expensive: one of each list is taken of every small problem.
AVERAGES = ("average_sharpness", "adaptive_average", "mcallester")
SEARCHES = ("sam_sharpness_steps", "keskar", "adaptive_sharpness", "adaptive_sharpness_inf")
PRECONDITIONED = ("preconditioned_lambda_max", "preconditioned_lambda_max:method=lanczos")
# Every problem has at least five examples.
BATCHES = ("batch_sharpness:exact=false", "batch_sharpness:batch_size=4")
# λ_max(E[H_i²] − H²) needs every example's Hessian: n·size³ is at most this.
NONUNIFORMITY_ROOM = 3e8
MOST_EXAMPLES = 30


@dataclass(frozen=True)
class Problem:
    """What flatlab is given, and what the oracle needs besides.

    Attributes:
        seed: It makes the problem again.
        model: The network, trained, in the precision it is measured in.
        loss: The loss as flatlab is given it.
        each: The same loss of one example, written out by hand.
        x: Inputs.
        y: Labels.
        options: Options of `flatlab.measure`: mode, params, batch_size, dtype, reference.
        measures: What to measure.
        words: One line about it.
    """

    seed: int
    model: nn.Module
    loss: Any
    each: losses.Each
    x: Tensor
    y: Tensor
    options: dict[str, Any]
    measures: tuple[str, ...]
    words: str

    @property
    def wide(self) -> bool:
        """Whether it is too large for whole matrices."""
        return is_wide(self.seed)

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.words}"


def is_wide(seed: int) -> bool:
    """Return whether this seed makes a network of 40,000 parameters or more."""
    return seed % WIDE_EVERY == 0


def draw(seed: int) -> Problem:
    """Return the problem of a seed."""
    random = np.random.default_rng([seed, 16])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(random.integers(2**31)))
        return _wide(seed, random) if is_wide(seed) else _small(seed, random)


def _small(seed: int, random: Random) -> Problem:
    loss = losses.draw(random)
    size = int(np.exp(random.uniform(np.log(50), np.log(800))))
    n = int(np.exp(random.uniform(np.log(5), np.log(200))))
    family = str(random.choice(list(networks.FAMILIES), p=[0.55, 0.2, 0.15, 0.1]))
    norm = choice(random, networks.NORMS) if random.random() < 0.4 else "none"
    network = networks.FAMILIES[family](random, loss.outputs, size, norm)
    model = network.model.double()
    if loss.last is not None:
        model = nn.Sequential(*model, loss.last) if isinstance(model, nn.Sequential) else (
            nn.Sequential(model, loss.last)
        )  # fmt: skip
    if family in ("convolution", "attention"):  # their whole Hessians are the most expensive
        n = min(n, 60, max(5, 15_000 // size))
    x, y = _data(random, network.shape, loss, n)
    _unsettle(model)
    start = copy.deepcopy(model.state_dict())
    trained = _train(random, model, loss, x, y)
    mode, options = _mode(random, model, n)
    chosen = _chosen(random, model)
    options |= {"mode": mode, "params": chosen}
    single = bool(random.random() < 0.5)
    if single:
        model, x, y = model.float(), x.float(), y.float() if y.is_floating_point() else y
        start = {name: part.float() for name, part in start.items()}
        options["dtype"] = "float64" if random.random() < 0.2 else None
    options["reference"] = start
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    words = (
        f"{network.words}, {loss.name}, {count} parameters"
        f"{'' if chosen is None else f' of which {chosen}'}, n={n}, {trained}, "
        f"{mode}, float{32 if single else 64}"
    )
    names = _measures(random, loss.name, mode, model, n, count)
    options["preconditioner"] = {
        name: torch.from_numpy(np.exp(random.normal(-3, 2, size=tuple(p.shape))))
        for name, p in model.named_parameters()
    }
    return Problem(seed, model, loss.given, loss.each, x, y, options, names, words)


def _wide(seed: int, random: Random) -> Problem:
    """Return one of eight kinds in turn: MLP or CNN, tanh or ReLU, float64 or float32."""
    turn = seed // WIDE_EVERY
    family, name = ("mlp", "cnn")[turn % 2], ("tanh", "relu")[turn // 2 % 2]
    single = bool(turn // 4 % 2)
    loss = losses.draw(random)
    while loss.name == "nll":
        loss = losses.draw(random)
    network = networks.wide(random, loss.outputs, family, name)
    n = min(int(random.integers(100, 300)), 500 // loss.outputs)
    model = network.model.double()
    x, y = _data(random, network.shape, loss, n)
    start = copy.deepcopy(model.state_dict())
    steps = int(random.choice([0, 50]))
    _descend(model, loss.each, x, y, steps, 1e-3)
    if single:
        model, x, y = model.float(), x.float(), y.float() if y.is_floating_point() else y
    count = sum(p.numel() for p in model.parameters())
    words = (
        f"{network.words}, {loss.name}, {count} parameters, n={n}, {steps} steps, eval, "
        f"float{32 if single else 64}"
    )
    kind = choice(random, OTHER_MATRICES)
    names = ["lambda_max", "lambda_min", "top_k", *(f"{kind}_{each}" for each in MATRIX_MEASURES)]
    if (family, name) != ("cnn", "tanh"):  # the true diagonal costs a product for each parameter
        names += ["trace", "diagonal", "layer_trace", choice(random, AVERAGES)]
    options = {"mode": "eval", "reference": start}
    chosen = (*names, *CHEAP)
    return Problem(seed, model, loss.given, loss.each, x, y, options, chosen, words)


def _data(
    random: Random, shape: tuple[int, ...], loss: losses.Drawn, n: int
) -> tuple[Tensor, Tensor]:
    """Return standard normal inputs, and labels of a random teacher with noise."""
    x = torch.from_numpy(random.normal(size=(n, *shape)))
    flat = x.flatten(1)
    teacher = torch.from_numpy(random.normal(size=(flat.shape[1], loss.outputs)))
    scores = torch.sin(2 * flat @ teacher / flat.shape[1] ** 0.5) + flat @ teacher.roll(1, 0) / 3
    scores += 0.3 * torch.from_numpy(random.normal(size=scores.shape))
    return x, loss.labels(scores)


def _unsettle(model: nn.Module) -> None:
    """Give normalisation layers statistics and scales that are not trivial."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                assert module.running_mean is not None and module.running_var is not None
                module.running_mean.normal_(0, 0.5)
                module.running_var.uniform_(0.5, 1.5)
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.3)


def _train(random: Random, model: nn.Module, loss: losses.Drawn, x: Tensor, y: Tensor) -> str:
    """Train for 0, 50 or 500 steps, or to a nearly perfect fit; return which, in words."""
    draw = random.random()
    if draw < 0.3:
        return "untrained"
    if draw < 0.72:
        _descend(model, loss.each, x, y, 50, 0.02)
        return "50 steps"
    if draw < 0.78:
        _descend(model, loss.each, x, y, 500, 0.01)
        return "500 steps"
    target = loss.floor * 10 ** random.uniform(1, 5)
    reached = _fit(model, loss, x, y, float(target))
    return f"fitted to {reached:.0e}"


def _mean(each: losses.Each, f: Tensor, y: Tensor) -> Tensor:
    return torch.vmap(each)(f, y).mean()


def _descend(
    model: nn.Module, each: losses.Each, x: Tensor, y: Tensor, steps: int, lr: float
) -> None:
    """Take full-batch steps of Adam in training mode."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        _mean(each, model(x), y).backward()
        optimizer.step()
    model.zero_grad()


class _Fitted(Exception):
    """Ends L-BFGS at the target."""


def _fit(model: nn.Module, loss: losses.Drawn, x: Tensor, y: Tensor, target: float) -> float:
    """Minimise the loss in eval mode by L-BFGS until it is below the target, or 120 passes.

    The smallest loss on the way that is above the loss's floor is kept.
    """
    model.eval()
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=100, max_eval=120, tolerance_grad=0, tolerance_change=0,
        line_search_fn="strong_wolfe",
    )  # fmt: skip
    best, kept = math.inf, copy.deepcopy(model.state_dict())

    def closure() -> Tensor:
        nonlocal best, kept
        optimizer.zero_grad()
        found = _mean(loss.each, model(x), y)
        value = float(found.detach())
        if loss.floor <= value < best:
            best, kept = value, copy.deepcopy(model.state_dict())
        if value < target:
            raise _Fitted
        found.backward()
        return found

    with contextlib.suppress(_Fitted):
        optimizer.step(closure)
    model.load_state_dict(kept)
    model.zero_grad()
    return best


def _mode(random: Random, model: nn.Module, n: int) -> tuple[str, dict[str, Any]]:
    """Return the mode, mixed where there is a BatchNorm, and the size of batches."""
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    mode = choice(random, ("eval", "train", "recomputed")) if norms else "eval"
    if mode == "train" and n >= 8 and random.random() < 0.5:
        return mode, {"batch_size": n // 2 if n % 2 == 0 else n // 2 + 1}
    if random.random() < 0.2:
        return mode, {"batch_size": max(2, n // 3) if mode != "train" else None}
    return mode, {}


def _chosen(random: Random, model: nn.Module) -> list[str] | None:
    """Freeze a parameter now and then, and return a selection of the others now and then."""
    names = [name for name, _ in model.named_parameters()]
    draw = random.random()
    if draw < 0.1 and len(names) > 1:
        frozen = choice(random, names)
        dict(model.named_parameters())[frozen].requires_grad_(False)
    elif draw < 0.2:
        count = int(random.integers(1, len(names) + 1))
        places = sorted(random.choice(len(names), size=count, replace=False))
        # The first weight too, so that a selection has more than a bias.
        return sorted({names[0], *(names[int(place)] for place in places)})
    return None


def _measures(
    random: Random, loss: str, mode: str, model: nn.Module, n: int, size: int
) -> tuple[str, ...]:
    """Return all cheap measures, and one of each kind whose truth is expensive."""
    kind = choice(random, OTHER_MATRICES if loss != "nll" else ("fisher", "gram"))
    names = [*MATRIX_MEASURES, "lambda_min", *(f"{kind}_{name}" for name in MATRIX_MEASURES)]
    names += [*CHEAP, choice(random, AVERAGES), choice(random, SEARCHES)]
    names += [choice(random, LONG), *(BOUNDED if random.random() < 0.5 else PROBED)]
    mixed = mode == "train"
    if not mixed and n * size**3 <= NONUNIFORMITY_ROOM:
        names.append("nonuniformity")
    steps: list[tuple[str, ...]] = [PRECONDITIONED]  # one list of what steps of training see
    if not mixed:
        steps.append(("batch_sharpness", choice(random, BATCHES)))
    if not mixed and n <= MOST_EXAMPLES and loss != "nll":
        steps.append(MOMENTS)
    return (*names, *steps[int(random.integers(len(steps)))])
