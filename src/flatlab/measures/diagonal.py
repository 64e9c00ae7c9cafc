"""The diagonal of a curvature matrix."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ..problem import Problem
from ..problem.examples import factors, pieces, rows
from ..specs import spec
from .contract import About, Measured
from .effort import Effort
from .eigenvalues import Kind, Limit, Tolerance
from .probes import dense_within, sample
from .trace import Method, route

_BACKPACK = (
    nn.Sequential, nn.Linear, nn.Conv1d, nn.Conv2d, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Flatten,
    nn.MaxPool2d,
)  # fmt: skip


@spec
class Diagonal:
    """Every A_jj: exactly from per-example gradients, or as E g_j (A g)_j over signs g.

    For plain chains of layers that BackPACK knows, its exact diagonal is used.

    If the network is linear in each parameter alone, the Hessian's diagonal is the Gauss–Newton
    one. The error of an estimate is the standard error of each entry. With a budget the diagonal is
    always estimated: a part of the examples would say nothing about a parameter that only other
    examples use.
    """

    matrix: Kind = "hessian"
    method: Method = "auto"
    tolerance: Tolerance = 0.1
    max_products: Limit = 200
    about: ClassVar[About] = About(
        "diag",
        "the diagonal: the curvature along each parameter alone",
        "∂²L/∂θ_j² for every parameter j",
        "moves",
        "moves",
        "moves",
        "exact: one backward pass for each output; otherwise up to 200 products",
        "depends on the choice of coordinates; entries of an estimate have large errors",
        exact="as the trace; a standard error for each entry otherwise",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure; an estimate stops when its RMS error is small compared with the norm."""
        way = route(problem, self.matrix, self.method, effort)
        if way == "exact" and not effort.limited:
            return _exact(problem, "ggn" if self.matrix == "hessian" else self.matrix, effort)
        matrix = problem.matrix(self.matrix)
        dense = dense_within(matrix, effort) if way == "dense" else None
        if dense is not None:
            values = dense.diagonal().numpy()
            return Measured(values, 0.0 * values, True, "exact, dense")
        effort.expect(self.max_products)

        def probe(i: int) -> np.ndarray:
            g = effort.signs("diagonal", i, problem.size)
            return np.asarray((g * (matrix @ g)).numpy())

        drawn = sample(
            probe,
            effort,
            lambda mean, error: bool(
                np.linalg.norm(error) <= self.tolerance * np.linalg.norm(mean)
            ),
            self.max_products,
        )
        return Measured(
            drawn.mean, drawn.stderr, False, f"Hutchinson, {len(drawn.rows)} probes",
            drawn.dof, drawn.complete,
        )  # fmt: skip


def _exact(problem: Problem, kind: str, effort: Effort) -> Measured:
    """Return the mean over all examples."""
    values = _by_backpack(problem) if kind == "ggn" else None
    if values is None:
        values = _by_rows(problem, kind, effort)
        return Measured(values, 0.0 * values, True, "exact, per-example gradients")
    effort.spend(problem.outputs[0][0].numel())
    return Measured(values, 0.0 * values, True, "exact, BackPACK")


def _by_rows(problem: Problem, kind: str, effort: Effort) -> np.ndarray:
    total = torch.zeros(problem.size, dtype=torch.float64)
    for x, outputs, y in pieces(problem):
        values, vectors = factors(problem, kind, outputs, y)
        vectors = vectors.reshape(*outputs.shape, -1)
        for c in range(values.shape[1]):
            squares = rows(problem, x, vectors[..., c]).double().square()
            total += values[:, c].double() @ squares / problem.n
            effort.spend()
    return np.asarray(total.numpy())


def _by_backpack(problem: Problem) -> np.ndarray | None:
    """Return the Gauss–Newton diagonal by BackPACK, or None if it does not know a part."""
    loss = _known_loss(problem)
    if loss is None or not _known_model(problem):
        return None
    from backpack import backpack, extend
    from backpack.extensions import DiagGGNExact

    model, loss = extend(copy.deepcopy(problem.model)), extend(loss)
    params = dict(model.named_parameters())
    total: list[Tensor] = [torch.zeros_like(params[name]).double() for name in problem.params]
    for x, y in problem.batches:
        with backpack(DiagGGNExact()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its hooks fire on inputs without gradients
            loss(model(x), y).backward()
        for part, name in zip(total, problem.params, strict=True):
            part += params[name].diag_ggn_exact.double() * (len(x) / problem.n)
    return np.asarray(torch.cat([part.flatten() for part in total]).numpy())


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of nested Sequentials in order; a layer used twice comes twice."""
    if isinstance(module, nn.Sequential):
        for child in module:
            yield from _leaves(child)
    else:
        yield module


def _known_model(problem: Problem) -> bool:
    """Return whether the model is a chain of layers that BackPACK handles, each used once."""
    model = problem.model
    leaves = [id(module) for module in _leaves(model)]
    every = list(model.named_parameters(remove_duplicate=False))
    return (
        isinstance(model, nn.Sequential)
        and all(map(_known_layer, model.modules()))
        and len(set(leaves)) == len(leaves)
        and len(problem.params) == len(every)
        and all(outputs.ndim == 2 for outputs in problem.outputs)
    )


def _known_layer(module: nn.Module) -> bool:
    if type(module) not in _BACKPACK or not _untouched(module):
        return False
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        return module.padding_mode == "zeros" and not isinstance(module.padding, str)
    if isinstance(module, nn.MaxPool2d):
        return not module.return_indices
    return not getattr(module, "inplace", False)


def _untouched(module: nn.Module) -> bool:
    """Return whether a module only does what its class does: no hooks, no forward of its own."""
    hooks = (
        module._forward_hooks, module._forward_pre_hooks, module._backward_hooks,
        module._backward_pre_hooks,
    )  # fmt: skip
    return not any(hooks) and "forward" not in vars(module)


def _known_loss(problem: Problem) -> Any:
    """Return the loss as a module that BackPACK knows, with no option set, or None."""
    loss = problem.loss
    classes = not any(y.is_floating_point() for _, y in problem.batches)
    if loss is nn.functional.cross_entropy and classes:
        return nn.CrossEntropyLoss()
    if type(loss) is nn.MSELoss and _untouched(loss):
        return nn.MSELoss()
    if type(loss) is nn.CrossEntropyLoss and _untouched(loss):
        plain = loss.weight is None and loss.label_smoothing == 0 and loss.ignore_index == -100
        return nn.CrossEntropyLoss() if plain and classes else None
    return None
