"""A problem's function and its matrices in float64, formed whole; nothing here is flatlab's.

BatchNorm is written out in elementary operations: torch.func differentiates torch's own wrongly in
train mode. Everything else is the model's own code in float64.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from .problems import Problem

Array = NDArray[np.float64]

# Hessian products are made together as long as they hold at most this many numbers.
ROOM = 4_000_000


class PlainBatchNorm(nn.Module):
    """BatchNorm by its formula, with the statistics of the batch or with fixed ones."""

    def __init__(self, norm: nn.BatchNorm1d | nn.BatchNorm2d):
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        assert norm.running_mean is not None and norm.running_var is not None
        self.mean, self.variance = norm.running_mean.clone(), norm.running_var.clone()
        self.fixed, self.keep = True, False

    def forward(self, x: Tensor) -> Tensor:
        axes = [axis for axis in range(x.ndim) if axis != 1]
        shape = [1, -1] + [1] * (x.ndim - 2)
        mean, variance = self.mean, self.variance
        if not self.fixed:
            mean = x.mean(axes)
            variance = (x - mean.view(shape)).square().mean(axes)
            if self.keep:  # the running variance is the unbiased one
                count = x.numel() // x.shape[1]
                self.mean, self.variance = mean.detach(), variance.detach() * count / (count - 1)
        scaled = (x - mean.view(shape)) / (variance.view(shape) + self.eps).sqrt()
        return scaled * self.weight.view(shape) + self.bias.view(shape)


def written_out(model: nn.Module) -> nn.Module:
    """Return a float64 copy with every BatchNorm written out."""
    made = copy.deepcopy(model).double().eval()
    for parent in list(made.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
                setattr(parent, name, PlainBatchNorm(child))
    return made


@contextmanager
def _quiet() -> Iterator[None]:
    """Use attention that has second derivatives, and silence vmap where it loops."""
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Oracle:
    """L(θ), its derivatives and its matrices."""

    def __init__(self, problem: Problem):
        self.problem, self.each = problem, problem.each
        self.model = written_out(problem.model)
        self.x, y = problem.x.double(), problem.y
        self.y = y.double() if y.is_floating_point() else y
        self.n = len(self.x)
        options = problem.options
        self.mode = options["mode"]
        self._set_mode()
        # Only in mode "train" does it matter how the data is split.
        size = (options.get("batch_size") or self.n) if self.mode == "train" else self.n
        self.batches = list(zip(self.x.split(size), self.y.split(size), strict=True))
        wanted = options.get("params")
        self.params = {
            name: p.detach()
            for name, p in self.model.named_parameters()
            if p.requires_grad and (wanted is None or any(fnmatchcase(name, w) for w in wanted))
        }
        self.model.requires_grad_(False)
        self.theta = torch.cat([p.flatten() for p in self.params.values()])
        self.size = len(self.theta)

    @property
    def mixed(self) -> bool:
        """Whether an output depends on the other examples of its batch."""
        return self.mode == "train" and bool(self._norms)

    @property
    def _norms(self) -> list[PlainBatchNorm]:
        return [module for module in self.model.modules() if isinstance(module, PlainBatchNorm)]

    def _set_mode(self) -> None:
        for norm in self._norms:
            norm.fixed, norm.keep = self.mode == "eval", self.mode == "recomputed"
        if self.mode == "recomputed":
            with torch.no_grad():
                self.model(self.x)
            for norm in self._norms:
                norm.fixed = True

    def blocks(self, labels: tuple[str, ...]) -> list[NDArray[np.int64]]:
        """Return the places of each label's parameters: a layer's, or a parameter's own name."""
        spans, start = {}, 0
        for name, p in self.params.items():
            spans[name] = np.arange(start, start + p.numel())
            start += p.numel()
        return [
            np.concatenate(
                [at for name, at in spans.items() if label in (name, name.rpartition(".")[0])]
            )
            for label in labels
        ]

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return the network's outputs at other parameters."""
        parts = theta.split([p.numel() for p in self.params.values()])
        given = {
            name: part.view_as(p)
            for (name, p), part in zip(self.params.items(), parts, strict=True)
        }
        out: Tensor = functional_call(self.model, given, (x,))
        return out

    def value(self, theta: Tensor) -> Tensor:
        """Return L(θ)."""
        parts = [vmap(self.each)(self.outputs(theta, x), y).sum() for x, y in self.batches]
        return torch.stack(parts).sum() / self.n

    def example(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of one example alone."""
        return self.each(self.outputs(theta, x[None])[0], y)

    def values(self, steps: Tensor) -> Array:
        """Return L(θ + step) for every row."""
        chunk = max(1, ROOM // (8 * self.n * 20))
        with _quiet(), torch.no_grad():
            found = vmap(lambda step: self.value(self.theta + step), chunk_size=chunk)(steps)
        return np.asarray(found.numpy())

    def slopes_at(self, steps: Tensor) -> tuple[Array, Tensor]:
        """Return L and ∇L in θ + step for every row."""
        with _quiet():
            slopes, values = vmap(torch.func.grad_and_value(self.value))(self.theta + steps)
        return np.asarray(values.numpy()), slopes

    @cached_property
    def loss(self) -> float:
        """L(θ)."""
        with _quiet(), torch.no_grad():
            return float(self.value(self.theta))

    @cached_property
    def gradient(self) -> Tensor:
        """∇L(θ)."""
        with _quiet():
            found: Tensor = grad(self.value)(self.theta)
        return found

    @cached_property
    def f(self) -> Tensor:
        """All outputs, (n, outputs)."""
        with _quiet(), torch.no_grad():
            return torch.cat([self.outputs(self.theta, x) for x, _ in self.batches])

    @cached_property
    def slopes(self) -> Tensor:
        """∂ℓ_i/∂f, (n, outputs)."""
        found: Tensor = vmap(grad(self.each))(self.f, self.y)
        return found

    @cached_property
    def bends(self) -> Tensor:
        """∂²ℓ_i/∂f², (n, outputs, outputs)."""
        found: Tensor = vmap(jacrev(jacrev(self.each)))(self.f, self.y)
        return found

    @cached_property
    def jacobian(self) -> Tensor:
        """∂f_i/∂θ, (n, outputs, size)."""

        def alone(x: Tensor) -> Any:
            return jacrev(lambda theta: self.outputs(theta, x[None])[0])(self.theta)

        with _quiet():
            if self.mixed:
                return torch.cat(
                    [jacrev(lambda t, x=x: self.outputs(t, x))(self.theta) for x, _ in self.batches]
                )
            return torch.cat([vmap(alone)(part) for part in self.x.split(64)])

    @cached_property
    def example_gradients(self) -> Tensor:
        """∂ℓ_i/∂θ through the outputs of example i, (n, size)."""
        return torch.einsum("ic,icp->ip", self.slopes, self.jacobian)

    def product(self, vectors: Tensor) -> Tensor:
        """Return ∇²L v for every row, reverse over reverse."""
        with _quiet():
            pull: Any = vjp(grad(self.value), self.theta)[1]
            chunk = max(1, ROOM // (self.n * 50 + self.size))
            found: Tensor = vmap(lambda v: pull(v)[0], chunk_size=chunk)(vectors)
        return found

    def quadratic(self, steps: Tensor) -> Array:
        """Return ½ δᵀ∇²L δ for every row."""
        H = torch.from_numpy(self.matrix("hessian"))
        return np.asarray(((steps @ H) * steps).sum(1).numpy() / 2)

    @cached_property
    def _matrices(self) -> dict[str, Array]:
        return {}

    def matrix(self, kind: str) -> Array:
        """Return the Hessian, Gauss–Newton, Fisher or Gram matrix, whole."""
        if kind not in self._matrices:
            self._matrices[kind] = self._formed(kind).numpy()
        return self._matrices[kind]

    def _formed(self, kind: str) -> Tensor:
        if kind == "hessian":
            whole = self.product(torch.eye(self.size, dtype=torch.float64))
            return (whole + whole.T) / 2
        if kind == "fisher":
            rows = self.example_gradients
            return rows.T @ rows / self.n
        J = self.jacobian.flatten(0, 1)
        if kind == "gram":
            return J.T @ J / self.n
        bent = (self.bends @ self.jacobian).flatten(0, 1)
        return J.T @ bent / self.n

    @cached_property
    def _spectra(self) -> dict[str, Array]:
        return {}

    def eigenvalues(self, kind: str) -> Array:
        """Return all eigenvalues in ascending order."""
        if kind not in self._spectra:
            self._spectra[kind] = np.linalg.eigvalsh(self.matrix(kind))
        return self._spectra[kind]

    def scale(self, kind: str) -> float:
        """Return the spectral norm."""
        return float(np.abs(self.eigenvalues(kind)[[0, -1]]).max())

    def diagonal(self, kind: str) -> Array:
        """Return the diagonal."""
        return self.matrix(kind).diagonal()

    def frobenius(self, kind: str) -> float:
        """Return the Frobenius norm."""
        return float(np.linalg.norm(self.matrix(kind)))

    def top(self, kind: str, k: int) -> Array:
        """Return the k largest eigenvalues in descending order."""
        return self.eigenvalues(kind)[::-1][:k]

    def bottom(self, kind: str) -> float:
        """Return the smallest eigenvalue."""
        return float(self.eigenvalues(kind)[0])

    def block_top(self, kind: str, block: NDArray[np.int64]) -> float:
        """Return the largest eigenvalue of a diagonal block."""
        return float(np.linalg.eigvalsh(self.matrix(kind)[np.ix_(block, block)])[-1])

    def spread_of_hessians(self) -> Array:
        """Return E[H_i²] − H² from every example's whole Hessian, centred so as not to cancel."""
        basis = torch.eye(self.size, dtype=torch.float64)

        def alone(x: Tensor, y: Tensor) -> Tensor:
            # Not jacrev(jacrev(…)), which is wrong for torch's layer_norm.
            pull: Any = vjp(grad(lambda theta: self.example(theta, x, y)), self.theta)[1]
            try:
                found: Tensor = vmap(lambda v: pull(v)[0])(basis)
            except RuntimeError:  # an operation in place, which vmap cannot do
                found = torch.stack([pull(v)[0] for v in basis])
            return found

        with _quiet():
            each = torch.stack([alone(x, y) for x, y in zip(self.x, self.y, strict=True)])
        away = each - each.mean(0)
        return np.asarray(torch.einsum("ijk,ikl->jl", away, away).numpy() / self.n)

    def curvatures_along(self, rows: Tensor) -> Array:
        """Return gᵀHg/‖g‖² of each row's batch; NaN where the gradient is 0."""

        def alone(x: Tensor, y: Tensor) -> Tensor:
            def value(theta: Tensor) -> Tensor:
                found: Tensor = vmap(self.each)(self.outputs(theta, x), y).mean()
                return found

            slope, pull = vjp(grad(value), self.theta)
            image: Tensor = pull(slope)[0]
            return torch.stack([slope @ image, slope @ slope])

        chunk = max(1, ROOM // (rows.shape[1] * 50 + 4 * self.size))
        with _quiet():
            try:
                found = vmap(alone, chunk_size=chunk)(self.x[rows], self.y[rows])
            except RuntimeError:  # an operation in place, which vmap cannot do
                found = torch.stack([alone(self.x[each], self.y[each]) for each in rows])
        return np.asarray((found[:, 0] / found[:, 1]).numpy())

    def noise_moments(self) -> Array:
        """Return Tr ΣG, ‖Σ‖_F² and ‖G‖_F², from products on the side of the examples."""
        R = self.example_gradients
        R, J = R - R.mean(0), self.jacobian.flatten(0, 1)
        found = [(A @ B.T).square().sum() for A, B in ((R, J), (R, R), (J, J))]
        return np.array([float(value) for value in found]) / self.n**2
