"""The oracle for 40,000 parameters and more: exact without whole matrices.

- Gauss–Newton, Fisher and Gram matrices are FᵀF with one row of F for each example and output, so
  FFᵀ has their nonzero eigenvalues.
- The Hessian's ends come from scipy's `eigsh` on float64 products, to 1e-10.
- The Hessian's diagonal is that of the Gauss–Newton matrix for networks that are linear in each
  parameter alone. For smooth linear layers it is ∂²L/∂W_ij² = Σ ∂²ℓ/∂z_i² a_j², with the Hessian in
  the layer's outputs z from the layer above.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn

from .oracle import Array, Oracle

TOLERANCE = 1e-10
# Eigenvalues found at the upper end: as many as top_k reads, or more.
ENOUGH = 10


class Wide(Oracle):
    """The same truths as `Oracle`, where they can be afforded."""

    def quadratic(self, steps: Tensor) -> Array:
        """Return ½ δᵀ∇²L δ for every row."""
        return np.asarray((self.product(steps) * steps).sum(1).numpy() / 2)

    @cached_property
    def _factors(self) -> dict[str, Tensor]:
        return {}

    def factor(self, kind: str) -> Tensor:
        """Return F with A = FᵀF."""
        if kind not in self._factors:
            if kind == "fisher":
                found = self.example_gradients
            elif kind == "gram":
                found = self.jacobian.flatten(0, 1)
            else:
                values, vectors = torch.linalg.eigh(self.bends)
                root = values.clamp(min=0).sqrt()[:, :, None] * vectors.transpose(1, 2)
                found = (root @ self.jacobian).flatten(0, 1)
            self._factors[kind] = found / self.n**0.5
        return self._factors[kind]

    def eigenvalues(self, kind: str) -> Array:
        """Return all eigenvalues, most of which are zero; not of the Hessian."""
        assert kind != "hessian"
        if kind not in self._spectra:
            F = self.factor(kind)
            some = torch.linalg.eigvalsh(F @ F.T).clamp(min=0).numpy()
            zeros = np.zeros(max(0, self.size - len(some)))
            self._spectra[kind] = np.concatenate([zeros, some])
        return self._spectra[kind]

    @cached_property
    def _ends(self) -> tuple[Array, float]:
        def product(v: Array) -> Array:
            found = self.product(torch.from_numpy(np.asarray(v, np.float64).ravel())[None])
            return np.asarray(found[0].numpy())

        matrix = LinearOperator((self.size, self.size), matvec=product, dtype=np.float64)
        start = np.random.default_rng(0).normal(size=self.size)
        common: Any = {
            "tol": TOLERANCE,
            "return_eigenvectors": False,
            "v0": start,
            "maxiter": 10_000,
        }
        high = eigsh(matrix, k=ENOUGH, which="LA", ncv=3 * ENOUGH, **common)
        low = eigsh(matrix, k=1, which="SA", ncv=3 * ENOUGH, **common)
        return np.sort(high)[::-1], float(low[0])

    def scale(self, kind: str) -> float:
        """Return the spectral norm."""
        if kind != "hessian":
            return super().scale(kind)
        high, low = self._ends
        return max(abs(float(high[0])), abs(low))

    def top(self, kind: str, k: int) -> Array:
        """Return the k largest eigenvalues in descending order."""
        return self._ends[0][:k] if kind == "hessian" else super().top(kind, k)

    def bottom(self, kind: str) -> float:
        """Return the smallest eigenvalue."""
        return self._ends[1] if kind == "hessian" else super().bottom(kind)

    def block_top(self, kind: str, block: NDArray[np.int64]) -> float:
        """Return the largest eigenvalue of a diagonal block; not of the Hessian."""
        F = self.factor(kind)[:, torch.from_numpy(block)]
        return float(torch.linalg.eigvalsh(F @ F.T)[-1])

    def frobenius(self, kind: str) -> float:
        """Return the Frobenius norm; not of the Hessian."""
        return float(np.linalg.norm(self.eigenvalues(kind)))

    def diagonal(self, kind: str) -> Array:
        """Return the diagonal."""
        if kind == "hessian" and any(isinstance(m, nn.Tanh) for m in self.model.modules()):
            return self._smooth_diagonal
        F = self.factor("ggn" if kind == "hessian" else kind)
        return np.asarray(F.square().sum(0).numpy())

    @cached_property
    def _smooth_diagonal(self) -> Array:
        """Walk down a Sequential of Linear and Tanh with ∂ℓ/∂z and ∂²ℓ/∂z² of every example."""
        assert isinstance(self.model, nn.Sequential)
        inputs, x = [], self.x
        with torch.no_grad():
            for module in self.model:
                inputs.append(x)
                x = module(x)
        slope, bend = self.slopes, self.bends
        found: list[Tensor] = []
        for module, a in zip(reversed(self.model), reversed(inputs), strict=True):
            if isinstance(module, nn.Linear):
                own = bend.diagonal(dim1=1, dim2=2)
                found[:0] = [(own.T @ a.square()).flatten(), own.sum(0)]
                slope = slope @ module.weight
                bend = (
                    module.weight.T @ bend @ module.weight if module is not self.model[0] else bend
                )
            else:
                assert isinstance(module, nn.Tanh)
                t = a.tanh()
                first = 1 - t.square()
                second = -2 * t * first
                bend = first[:, :, None] * bend * first[:, None, :] + torch.diag_embed(
                    second * slope
                )
                slope = slope * first
        return np.asarray((torch.cat(found) / self.n).numpy())
