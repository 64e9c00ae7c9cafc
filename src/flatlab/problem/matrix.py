"""A symmetric matrix known by its products with vectors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Number of columns that are multiplied in one call.
TOGETHER = 16


class Matrix:
    """A symmetric matrix over the flat parameters that counts its products.

    Attributes:
        kind: "hessian", "ggn", "fisher", "gram", or another name.
        size: Number of rows.
        products: Products with a vector so far.
        precision: Relative rounding of a product's numbers.
    """

    def __init__(
        self,
        kind: str,
        size: int,
        product: Callable[[Tensor], Tensor],
        dtype: torch.dtype,
        device: torch.device,
    ):
        self.kind, self.size, self.products = kind, size, 0
        self._product, self._dtype, self._device = product, dtype, device
        self.precision = float(torch.finfo(dtype).eps)

    def __matmul__(self, vectors: Tensor) -> Tensor:
        """Return the product with a vector (size,) or each column of (size, k), in float64."""
        if vectors.ndim == 2 and vectors.shape[1] > TOGETHER:
            return torch.cat([self @ part for part in torch.split(vectors, TOGETHER, 1)], 1)
        self.products += 1 if vectors.ndim == 1 else vectors.shape[1]
        product = self._product(vectors.to(self._device, self._dtype))
        return product.to("cpu", torch.float64)

    def within(self, part: slice) -> Matrix:
        """Return the diagonal block of a slice of the parameters; its products count here."""

        def product(vector: Tensor) -> Tensor:
            padded = torch.zeros(self.size, *vector.shape[1:], dtype=torch.float64)
            padded[part] = vector.to("cpu", torch.float64)
            return (self @ padded)[part]

        size = len(range(*part.indices(self.size)))
        made = Matrix(self.kind, size, product, torch.float64, torch.device("cpu"))
        made.precision = self.precision
        return made

    def dense(self) -> Tensor:
        """Return the whole matrix, made symmetric; it takes one product for each row."""
        whole = self @ torch.eye(self.size, dtype=torch.float64)
        return (whole + whole.T) / 2
