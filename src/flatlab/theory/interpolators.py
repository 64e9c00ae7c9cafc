"""Random networks that interpolate a training set, for testing statements about all such networks.

The output is linear in the last layer. So if the features of the n points are linearly independent,
least squares in the last layer interpolates, whatever the layers before it. `random_interpolators`
draws those layers. `flattened` then lowers the trace: an inequality about all interpolating
networks is closest to failing at the flattest ones.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..data.dataset import Array
from ..errors import UserError
from ..models import Chain, Params
from .solution import Solution

RESCALING = 1.0
"""Standard deviation of the logarithm of the random scale of a neuron."""
TRIES = 20
"""Number of draws for each network before giving up."""
RIDGE = 1e-10
"""Ridge on the Gram matrix of the features during the descent, relative to its mean diagonal."""

FITTED = 1e-3
"""Largest error of a network met in the descent, relative to the labels. Where it is larger the
features are linearly dependent up to the ridge, and least squares cannot make it interpolate."""


def random_interpolators(
    arch: Chain,
    data: Dataset,
    rng: np.random.Generator,
    count: int,
    rescale: bool = True,
) -> list[Solution]:
    """Return networks with random weights, the last layer by least squares of minimum norm.

    If the features are linearly dependent, the layers are drawn again.

    Args:
        arch: The architecture, at least as wide as there are training points.
        data: The training set.
        rng: Source of all randomness.
        count: Number of networks.
        rescale: Rescale neurons at random without changing f, where the architecture allows it:
            incoming weights by s and outgoing by 1/s, or γ by s and W2 by 1/s under simplified
            BatchNorm.
    """
    made: list[Solution] = []
    failures = 0
    while len(made) < count:
        shapes = arch.shapes(data.d)
        params: Params = {k: rng.normal(size=s) / np.sqrt(s[-1]) for k, s in shapes.items()}
        params[arch.last_layer][:] = 0
        try:
            solution = interpolating(Solution(arch, params, data))
        except UserError:
            failures += 1
            if failures > TRIES * count:
                raise
            continue
        made.append(_rescaled(solution, rng) if rescale else solution)
    return made


def flattened(starts: list[Solution], steps: int = 100) -> list[Solution]:
    """Minimise the trace over the interpolating networks from every start, by L-BFGS.

    The parameters move freely. Before the trace (2/n) Σ‖∇f(x_i)‖² is computed, the last layer gets
    the least change that makes the network interpolate, and the gradient flows through that
    correction. The flattest network of every descent is returned, interpolating up to rounding.

    Args:
        starts: Interpolating networks, of which the architecture and data are kept.
        steps: Number of steps; each evaluates the trace about once.
    """
    return [_flattened(start, steps) for start in starts]


def interpolating(solution: Solution) -> Solution:
    """Return the network with the least change of its last layer that makes it interpolate."""
    name, data = solution.arch.last_layer, solution.data
    features = last_features(solution)
    weights = solution.params[name]
    for _ in range(2):  # the second pass removes the rounding of the first
        misfit = data.y_train - features @ weights
        weights = weights + np.linalg.lstsq(features, misfit, rcond=None)[0]
    if np.max(np.abs(features @ weights - data.y_train)) > 1e-8:
        raise UserError(
            f"least squares in {name} does not interpolate: the {data.n} training points have "
            f"features of rank {np.linalg.matrix_rank(features)}; take a larger width"
        )
    return solution.with_params(**{name: weights})


def last_features(solution: Solution) -> Array:
    """Return the inputs of the last layer, (n, width): the Jacobian of f in its weights."""
    name, module = solution.arch.last_layer, solution.module
    others = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    x = torch.tensor(solution.data.x_train)

    def outputs(weights: Tensor) -> Tensor:
        made: Tensor = torch.func.functional_call(module, {**others, name: weights}, (x,))
        return made

    with torch.no_grad():
        each = torch.func.vmap(outputs)(torch.eye(len(others[name]), dtype=torch.float64))
    return np.asarray(each.T)


def _rescaled(solution: Solution, rng: np.random.Generator) -> Solution:
    params: Params = {name: np.array(value) for name, value in solution.params.items()}
    arch = solution.arch
    norm, homogeneous = arch.norm, arch.activation in ("relu", "identity")
    if norm == "layer" or not (homogeneous or norm):
        return solution
    if "gamma" in params:
        scale = np.exp(RESCALING * rng.normal(size=len(params["gamma"])))
        params["W2"] /= scale
        for name in ("gamma", "beta"):
            if name in params:
                params[name] *= scale
        return solution.with_params(**params)
    names = [name for name in params if name.startswith("W")]
    for before, after in itertools.pairwise(names):
        scale = np.exp(RESCALING * rng.normal(size=len(params[before])))
        params[before] *= scale[:, None]
        if before == "W1" and "b1" in params:
            params["b1"] *= scale
        params[after] /= scale
    return solution.with_params(**params)


def _flattened(start: Solution, steps: int) -> Solution:
    name, module = start.arch.last_layer, start.module
    x, y = torch.tensor(start.data.x_train), torch.tensor(start.data.y_train)
    buffers = dict(module.named_buffers())
    params = {key: p.detach().clone().requires_grad_() for key, p in module.named_parameters()}
    basis = torch.eye(len(params[name]), dtype=torch.float64)
    best, least = start, start.trace

    def outputs(values: dict[str, Tensor], points: Tensor) -> Tensor:
        made: Tensor = torch.func.functional_call(module, {**values, **buffers}, (points,))
        return made

    def corrected() -> dict[str, Tensor]:
        features = torch.func.vmap(lambda w: outputs({**params, name: w}, x))(basis).T
        gram = features @ features.T
        ridge = RIDGE * gram.diagonal().mean() * torch.eye(len(y), dtype=torch.float64)
        change = features.T @ torch.linalg.solve(gram + ridge, y - features @ params[name])
        return {**params, name: params[name] + change}

    each = torch.func.vmap(
        torch.func.grad(lambda values, point: outputs(values, point[None])[0]), (None, 0)
    )
    optimizer = torch.optim.LBFGS(
        list(params.values()), max_iter=steps, history_size=20, line_search_fn="strong_wolfe",
        tolerance_grad=1e-12, tolerance_change=1e-14,
    )  # fmt: skip

    def closure() -> Tensor:
        nonlocal best, least
        optimizer.zero_grad()
        values = corrected()
        parts = [part.square().sum() for part in each(values, x).values()]
        trace = 2 / len(y) * torch.stack(parts).sum()
        misfit = float((y - outputs(values, x)).detach().abs().max())
        if misfit <= FITTED * float(y.abs().max()) and float(trace.detach()) < least:
            found = {key: value.detach().numpy().copy() for key, value in values.items()}
            best, least = start.with_params(**found), float(trace.detach())
        trace.backward()  # type: ignore[no-untyped-call]
        return trace

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return interpolating(best)
