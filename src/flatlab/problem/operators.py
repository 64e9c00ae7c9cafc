"""Curvature matrices known by their products with vectors.

curvlinops multiplies with a batch Hessian by forward over reverse mode, with one pass through the
network for each product. Here the graph of the gradient is kept where memory allows, so a product
is one backward pass (about a third less time). Reverse over reverse also works for operations
without forward mode.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..outside.memory import free_memory, saved_bytes
from .batches import Batch
from .convolution import FastConvolutions
from .graph import only_once
from .losses import raised, slopes

with warnings.catch_warnings():  # linear_operator, which it imports, still uses torch.jit
    warnings.simplefilter("ignore", DeprecationWarning)
    from curvlinops import GGNLinearOperator, HessianLinearOperator

# Graphs are kept up to about this many bytes of saved tensors, or half the free memory. The graph
# of a gradient holds about three times as much as the forward pass saves.
GRAPH_BYTES = 2**31
BACKWARD = 3
# Number of columns that are multiplied in one call.
TOGETHER = 16
CPU = torch.device("cpu")

Graph = tuple[float, tuple[Tensor, ...]]  # a batch's share of the data, and its gradient


class Matrix:
    """A symmetric matrix of `size` rows; `product` takes vectors of a dtype on a device."""

    def __init__(
        self,
        size: int,
        product: Callable[[Tensor], Tensor],
        dtype: torch.dtype = torch.float64,
        device: torch.device = CPU,
    ):
        self.size, self._product, self._dtype, self._device = size, product, dtype, device

    def __matmul__(self, vectors: Tensor) -> Tensor:
        """Return the product with a vector (size,) or each column of (size, k), in float64."""
        if vectors.ndim == 2 and vectors.shape[1] > TOGETHER:
            return torch.cat([self @ part for part in torch.split(vectors, TOGETHER, 1)], 1)
        return self._product(vectors.to(self._device, self._dtype)).to(CPU, torch.float64)

    def within(self, part: slice) -> Matrix:
        """Return the diagonal block of a slice of the parameters."""

        def product(vector: Tensor) -> Tensor:
            padded = torch.zeros(self.size, *vector.shape[1:], dtype=torch.float64)
            padded[part] = vector
            return (self @ padded)[part]

        return Matrix(len(range(*part.indices(self.size))), product)

    def dense(self) -> Tensor:
        """Return the whole matrix, made symmetric; it takes one product for each row."""
        whole = self @ torch.eye(self.size, dtype=torch.float64)
        return (whole + whole.T) / 2


class MeanLoss(nn.Module):
    """A mean loss in the form curvlinops takes: a module that names its reduction."""

    reduction = "mean"

    def __init__(self, loss: Any):
        super().__init__()
        self.loss = loss

    def forward(self, outputs: Tensor, y: Tensor) -> Any:
        """Return the mean loss of a batch."""
        return self.loss(outputs, y)


class Hessian(HessianLinearOperator):  # type: ignore[misc]
    """∇²L = Σ_b (n_b/n) ∇²L_b over batches b, reverse over reverse; small graphs are kept.

    A product is ∇_θ ⟨∇L_b(θ), v⟩ with v constant.
    """

    _graphs: list[Graph] | None = None

    def _matmat(self, M: list[Tensor]) -> list[Tensor]:
        if self._graphs is None:
            self._graphs = self._kept()
        total = [torch.zeros_like(m) for m in M]
        columns = M[0].shape[-1]
        for weight, slope in self._graphs or self._fresh():
            for k in range(columns):
                keep = bool(self._graphs) or k < columns - 1
                v = [m[..., k] for m in M]
                parts = torch.autograd.grad(
                    slope, self._params, v, retain_graph=keep, materialize_grads=True
                )
                for sum_, part in zip(total, parts, strict=True):
                    sum_[..., k].add_(part, alpha=weight)
        return total

    def _fresh(self) -> Iterator[Graph]:
        for X, y in self._loop_over_data():
            slope = gradients(self._model_func, self._loss_func, self._params, (X, y))
            yield self._get_normalization_factor(X, y), slope

    def _kept(self) -> list[Graph]:
        """Return the graphs of all batches, or nothing if they would take too much memory."""
        X, y = next(iter(self._loop_over_data()))
        held = BACKWARD * saved_bytes(lambda: self._loss_func(self._model_func(X), y))
        most = min(GRAPH_BYTES, free_memory() / 2)
        return [] if held * (self._N_data / len(X)) > most else list(self._fresh())


def gradients(
    model: Any, loss: Any, params: Sequence[Tensor], batch: Batch, fast: bool = True
) -> tuple[Tensor, ...]:
    """Return ∇L_b with its graph; `fast` convolutions cannot be vectorised."""
    x, y = batch
    with FastConvolutions() if fast else contextlib.nullcontext():
        value = loss(model(x), y)
    once = only_once(value)
    if once is not None:
        raise RuntimeError(f"{once} is marked once_differentiable, it has no second derivative")
    return torch.autograd.grad(value, list(params), create_graph=True, materialize_grads=True)


def operator(
    kind: str, model: nn.Module, loss: Any, params: Sequence[Tensor], batches: Sequence[Batch]
) -> Any:
    """Return the curvlinops operator of a kind; the model is known to be deterministic.

    With J_i = ∂f(x_i)/∂θ all but the Hessian are (1/n) Σ J_iᵀ B_i J_i: B_i = ∂²ℓ_i/∂f² for the
    GGN, u_i u_iᵀ with u_i = ∂ℓ_i/∂f for the empirical Fisher, the identity for the Gram matrix
    G(θ). The last two are GGNs of other losses: ½ (u_i·f)² and ½ ‖f‖².
    """
    if kind == "fisher":
        found = ((x, model(x), y) for x, y in batches)
        batches = [(x, slopes(loss, f, y).to(f.dtype)) for x, f, y in found]
        loss = _projected
    elif kind == "gram":
        loss = _half_square
    else:
        loss = _wide(loss, model, batches[0])
    made = Hessian if kind == "hessian" else GGNLinearOperator
    given, n = (model, MeanLoss(loss), list(params), list(batches)), sum(len(x) for x, _ in batches)
    return made(*given, check_deterministic=False, num_data=n)


def _wide(loss: Any, model: nn.Module, batch: Batch) -> Any:
    """Return the loss computed in float64 if it accepts that, for outputs of any dtype."""
    x, y = batch
    with torch.no_grad():
        outputs = model(x)
    double, wide, _ = raised(loss, outputs, y)
    if wide is outputs:
        return loss
    return lambda o, y: double(o.double(), y.double() if y.is_floating_point() else y)


def _projected(outputs: Tensor, slopes: Tensor) -> Tensor:
    return (outputs * slopes).reshape(len(outputs), -1).sum(1).square().mean() / 2


def _half_square(outputs: Tensor, y: Tensor) -> Tensor:
    return outputs.square().sum() / (2 * len(outputs))
