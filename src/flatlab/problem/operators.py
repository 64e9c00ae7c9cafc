"""Curvature matrices as curvlinops operators, and the Hessian with its graphs kept.

curvlinops multiplies with a batch Hessian by forward over reverse mode, with one pass through the
network for each product. Here the graph of the gradient is kept where memory allows, so a product
is one backward pass (about a third less time). Reverse over reverse also works for operations
without forward mode.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from .batches import Batch
from .convolution import FastConvolutions
from .graph import only_once
from .slopes import slopes

with warnings.catch_warnings():  # linear_operator, which it imports, still uses torch.jit
    warnings.simplefilter("ignore", DeprecationWarning)
    from curvlinops import GGNLinearOperator, HessianLinearOperator

# Graphs are kept up to about this many bytes of saved tensors. The graph of a gradient holds about
# three times as much as the forward pass saves.
GRAPH_BYTES = 2**31
BACKWARD = 3


class MeanLoss(nn.Module):
    """A mean loss in the form curvlinops takes: a module that names its reduction."""

    reduction = "mean"

    def __init__(self, loss: Any):
        super().__init__()
        self.loss = loss

    def forward(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        value: Tensor = self.loss(outputs, y)
        return value


class Hessian(HessianLinearOperator):  # type: ignore[misc]
    """∇²L = Σ_b (n_b/n) ∇²L_b over batches b, reverse over reverse; small graphs are kept.

    A product is ∇_θ ⟨∇L_b(θ), v⟩ with v constant.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._graphs: list[tuple[float, tuple[Tensor, ...]]] | None = None

    def _matmat(self, M: list[Tensor]) -> list[Tensor]:
        if self._graphs is None:
            self._graphs = self._kept()
        total = [torch.zeros_like(m) for m in M]
        for weight, gradients in self._graphs or self._fresh():
            keep = bool(self._graphs)
            for k in range(M[0].shape[-1]):
                last = k == M[0].shape[-1] - 1
                parts = torch.autograd.grad(
                    gradients,
                    self._params,
                    [m[..., k] for m in M],
                    retain_graph=keep or not last,
                    allow_unused=True,
                    materialize_grads=True,
                )
                for sum_, part in zip(total, parts, strict=True):
                    sum_[..., k].add_(part, alpha=weight)
        return total

    def _fresh(self) -> Any:
        for X, y in self._loop_over_data():
            yield self._get_normalization_factor(X, y), self._gradients(X, y)

    def _kept(self) -> list[tuple[float, tuple[Tensor, ...]]]:
        """Return the graphs of all batches, or nothing if they would take too much memory."""
        X, y = next(iter(self._loop_over_data()))
        counter = _Counter()
        with saved_tensors_hooks(counter, lambda _: torch.empty(0)):
            self._loss_func(self._model_func(X), y)
        batches = self._N_data / len(X)
        if BACKWARD * counter.bytes * batches > GRAPH_BYTES:
            return []
        return list(self._fresh())

    def _gradients(self, X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        with FastConvolutions():
            loss = self._loss_func(self._model_func(X), y)
        once = only_once(loss)
        if once is not None:
            raise RuntimeError(f"{once} is marked once_differentiable, it has no second derivative")
        return torch.autograd.grad(
            loss, self._params, create_graph=True, allow_unused=True, materialize_grads=True
        )


class _Counter:
    """Counts the bytes of distinct tensors that autograd would save, and keeps none of them."""

    def __init__(self) -> None:
        self.bytes, self.seen = 0, set[int]()

    def __call__(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.seen:
            self.seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()


def operator(
    kind: str, model: nn.Module, loss: Any, params: Sequence[Tensor], batches: Sequence[Batch]
) -> Any:
    """Return the curvlinops operator of a kind; the model is known to be deterministic.

    With J_i = ∂f(x_i)/∂θ all but the Hessian are (1/n) Σ J_iᵀ B_i J_i: B_i = ∂²ℓ_i/∂f² for the
    GGN, u_i u_iᵀ with u_i = ∂ℓ_i/∂f for the empirical Fisher, the identity for the Gram matrix
    G(θ). The last two are GGNs of other losses: ½ (u_i·f)² and ½ ‖f‖².
    """
    if kind == "fisher":
        batches = [(x, slopes(loss, model(x), y)) for x, y in batches]
        loss = _projected
    elif kind == "gram":
        loss = _half_square
    return {"hessian": Hessian}.get(kind, GGNLinearOperator)(
        model,
        MeanLoss(loss),
        list(params),
        list(batches),
        check_deterministic=False,
        num_data=sum(len(x) for x, _ in batches),
    )


def _projected(outputs: Tensor, slopes: Tensor) -> Tensor:
    return (outputs * slopes).reshape(len(outputs), -1).sum(1).square().mean() / 2


def _half_square(outputs: Tensor, y: Tensor) -> Tensor:
    return outputs.square().sum() / (2 * len(outputs))
