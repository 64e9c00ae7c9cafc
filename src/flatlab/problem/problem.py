"""The function that is measured: L(θ) = (1/n) Σ ℓ(f(x_i; θ), y_i), at one θ, on fixed data."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..errors import FlatlabError, UserError, unknown
from .batches import Batch, batches_of, cut, drawn, joined
from .copying import copied, require_numbers
from .losses import evaluate, first_line, loss_of
from .matrix import Matrix
from .meaning import require_finite, require_labels, require_mean, takes_classes
from .operators import operator
from .selection import layer_of, select
from .statistics import MODES as MODES
from .statistics import norms_of, set_mode

KINDS = {
    "hessian": "∇²L",
    "ggn": "(1/n) Σ J_iᵀ (∂²ℓ_i/∂f²) J_i, the Gauss–Newton part of the Hessian",
    "fisher": "(1/n) Σ ∇ℓ_i ∇ℓ_iᵀ, the empirical Fisher",
    "gram": "G = (1/n) Σ J_iᵀ J_i, the Gram matrix of the model's gradients",
}

# Examples passed through the network together, if the number does not matter.
PIECE = 128


class Problem:
    """A model, a loss and data.

    It works on a deep copy, so the user's model keeps its parameters, buffers, gradients, flags and
    hooks. Hooks are copied with the model, because they may be part of its function, and are called
    in every pass.

    Args:
        model: Any module from a batch of inputs to a batch of outputs.
        loss: A callable (outputs, y) → scalar mean over the batch, a flatlab Loss, or a name. That
            the loss of a batch is the mean of the losses of its examples is checked.
        data: A pair (x, y), a Dataset (its training part), a torch Dataset of such pairs or a
            loader of batches.
        mode: One of `MODES`.
        params: Name patterns or layers; None for all trainable parameters.
        dtype: "float32" or "float64" to measure in; None keeps the model's.
        batch_size: Size of the batches that a pair or a Dataset is split into. None is one batch in
            mode "train" and batches of `PIECE` in the other modes, whose result does not depend on
            the size and where small batches are faster.
        reference: Parameters by name to measure distances from, e.g. the initial ones.

    Attributes:
        params: The selected parameters of the copy, by name.
        n: Number of examples.
        size: Number of selected parameters.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        data: Any,
        *,
        mode: str = "eval",
        params: str | Sequence[str] | None = None,
        dtype: str | None = None,
        batch_size: int | None = None,
        reference: Mapping[str, Tensor] | None = None,
    ):
        if not isinstance(mode, str) or mode not in MODES:
            raise unknown("mode", str(mode), MODES)
        self.mode, self.loss, self.loss_name = mode, *loss_of(loss)
        self.model = copied(model, dtype)
        self.params = select(self.model, params)
        require_numbers(self.model, self.params)
        for name, p in self.model.named_parameters():
            p.requires_grad_(name in self.params)
        first = next(iter(self.params.values()))
        self.dtype, self.device = first.dtype, first.device
        found = batches_of(data, batch_size)
        if batch_size is None and mode != "train" and len(found) == 1:
            found = cut(found[0], PIECE)
        self.batches = [self._placed(batch) for batch in found]
        self.n = sum(len(x) for x, _ in self.batches)
        self.size = sum(p.numel() for p in self.params.values())
        self.reference = None if reference is None else self._flat(reference)
        with kernels():
            set_mode(self.model, mode, self.batches, self._outputs)
            self._check()

    def _flat(self, reference: Mapping[str, Tensor]) -> Tensor:
        for name, p in self.params.items():
            if name not in reference or tuple(reference[name].shape) != tuple(p.shape):
                raise UserError(
                    f"reference needs {name} of shape {tuple(p.shape)}, as the model's state_dict "
                    "at the start has it"
                )
        parts = [torch.as_tensor(reference[name]).flatten() for name in self.params]
        return torch.cat(parts).to(self.device, self.dtype)

    def _placed(self, batch: Batch) -> Batch:
        x, y = (
            part.to(self.device, self.dtype if part.is_floating_point() else None) for part in batch
        )
        whole = not y.is_floating_point() and not y.is_complex() and y.dtype != torch.bool
        if whole and (y.dtype == torch.uint8 or takes_classes(self.loss)):
            y = y.long()  # the dtype of class labels that every operation takes
        return x, y

    @torch.no_grad()
    def _check(self) -> None:
        """Check that L is defined on all of the data and is a mean; keep the outputs."""
        self.outputs = [self._outputs(x) for x, _ in self.batches]
        require_labels(self.loss, self.outputs, [y for _, y in self.batches])
        require_finite(self.loss, self.loss_name, self.outputs, self.batches)
        (x, y), outputs = self.batches[0], self.outputs[0]
        with torch.enable_grad():
            twice = self._outputs(x)
            slope = self._loss(outputs.detach().requires_grad_(True), y).requires_grad
        value, again = self._loss(outputs, y), self._loss(twice.detach(), y)
        if not torch.allclose(value, again, rtol=1e-5, atol=0):
            raise UserError(
                f"the model is not deterministic: two passes over one batch gave the losses "
                f"{float(value):.6g} and {float(again):.6g}. Switch dropout and random "
                f"augmentation off{', or measure in eval mode' if self.mode != 'eval' else ''}"
            )
        require_mean(self.loss, self.loss_name, self.outputs, self.batches)
        self._flat_loss, self._flat_model = not slope, not twice.requires_grad

    def require_gradient(self, loss: bool = True) -> None:
        """Raise if the outputs cannot be differentiated in θ, or the loss in the outputs."""
        if self._flat_model:
            raise UserError(
                "the model's outputs have no gradient in the selected parameters: they are not "
                "used, or cut off by detach() or no_grad()"
            )
        if loss and self._flat_loss:
            raise UserError(
                f"the loss {self.loss_name} has no gradient in the model's outputs: it is constant,"
                " not differentiable, or cut off by detach() or no_grad()"
            )

    def _outputs(self, x: Tensor) -> Tensor:
        try:
            outputs: Any = self.model(x)
        except FlatlabError:  # it already says what is wrong
            raise
        except Exception as error:  # the user's own code may raise anything
            text = first_line(error)
            if "more than 1 value per channel" in text:
                text = (
                    "BatchNorm needs more than one value for each channel to take statistics of; "
                    "choose batch_size so that no batch has one example, or measure in mode='eval'"
                )
            raise UserError(
                f"the model failed on a batch of shape {tuple(x.shape)} and {x.dtype}: {text}"
            ) from error
        if not isinstance(outputs, Tensor):
            raise UserError(
                f"the model returned {type(outputs).__name__}, it must return one tensor: wrap it"
            )
        if outputs.ndim == 0 or len(outputs) != len(x):
            raise UserError(
                f"the model gave shape {tuple(outputs.shape)} for {len(x)} examples: one row for "
                "each is needed"
            )
        return outputs

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return evaluate(self.loss, self.loss_name, outputs, y)

    @property
    def has_batchnorm(self) -> bool:
        """Whether some layer is a BatchNorm."""
        return bool(norms_of(self.model))

    @property
    def layers(self) -> dict[str, slice]:
        """The slice of each layer's parameters in the flat vector, in order."""
        spans: dict[str, slice] = {}
        start = 0
        for name, p in self.params.items():
            layer, stop = layer_of(name), start + p.numel()
            if layer in spans and spans[layer].stop != start:  # not next to its siblings
                layer = name
            spans[layer] = slice(spans[layer].start if layer in spans else start, stop)
            start = stop
        return spans

    @property
    def theta(self) -> Tensor:
        """The selected parameters as one vector."""
        return torch.cat([p.detach().flatten() for p in self.params.values()])

    def split(self, vector: Tensor) -> list[Tensor]:
        """Return a flat vector as tensors of the parameters' shapes."""
        sizes = [p.numel() for p in self.params.values()]
        pieces = torch.split(vector.to(self.device, self.dtype), sizes)
        return [part.view_as(p) for part, p in zip(pieces, self.params.values(), strict=True)]

    @contextlib.contextmanager
    def moved(self, step: Tensor) -> Iterator[None]:
        """Move to θ + step inside the block; afterwards θ is restored bit by bit."""
        before = [p.detach().clone() for p in self.params.values()]
        with torch.no_grad():
            for p, part in zip(self.params.values(), self.split(step), strict=True):
                p.add_(part)
        try:
            yield
        finally:
            with torch.no_grad():
                for p, old in zip(self.params.values(), before, strict=True):
                    p.copy_(old)

    @torch.no_grad()
    def value(self) -> float:
        """Return L(θ); batches are weighted by their number of examples and summed in float64."""
        with kernels():
            return sum(
                float(self._loss(self._outputs(x), y).double()) * len(x) / self.n
                for x, y in self.batches
            )

    def value_and_gradient(self) -> tuple[float, Tensor]:
        """Return L(θ) and ∇L(θ) as a flat vector."""
        self.require_gradient()
        total, value = torch.zeros(self.size, dtype=self.dtype, device=self.device), 0.0
        with kernels():
            for x, y in self.batches:
                loss = self._loss(self._outputs(x), y)
                parts = torch.autograd.grad(
                    loss, list(self.params.values()), allow_unused=True, materialize_grads=True
                )
                total += torch.cat([part.flatten() for part in parts]) * (len(x) / self.n)
                value += float(loss.detach().double()) * len(x) / self.n
        return value, total

    def thinned(self, step: int, seed: int = 0) -> Problem:
        """Return the same problem on a random 1/`step` of the examples, at least on one."""
        made = copy.copy(self)
        made.__dict__.pop("outputs", None)
        made.batches = drawn(self.batches, max(1, self.n // step), seed, "thinned", step)
        if self.mode != "train":
            made.batches = joined(made.batches, PIECE)
        made.n = sum(len(x) for x, _ in made.batches)
        return made

    @cached_property
    def outputs(self) -> list[Tensor]:
        """The model's outputs at θ, batch by batch."""
        with torch.no_grad(), kernels():
            return [self._outputs(x) for x, _ in self.batches]

    def matrix(self, kind: str = "hessian") -> Matrix:
        """Return a curvature matrix of `KINDS`; products are exact up to rounding."""
        if kind not in KINDS:
            raise unknown("matrix", kind, KINDS)
        self.require_gradient(loss=kind != "gram")
        with kernels():
            made = operator(kind, self.model, self.loss, list(self.params.values()), self.batches)

        def product(vector: Tensor) -> Tensor:
            try:
                with kernels(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # forward mode still uses the old torch.jit
                    result: Tensor = made @ vector
            except RuntimeError as error:  # torch's NotImplementedError is one
                text = first_line(error)
                raise UserError(
                    f"a product with the {kind} failed: {text}; {_hint(text)}"
                ) from None
            return result

        return Matrix(kind, self.size, product, self.dtype, self.device)


@contextlib.contextmanager
def kernels() -> Iterator[None]:
    """Use the attention kernel that has second derivatives."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def _hint(text: str) -> str:
    """Return what to do about a product that failed."""
    if "memory" in text or "allocate" in text:
        return "try less data or smaller batches"
    if "forward AD" in text:
        return "the model has an operation without forward mode: replace it, or try dtype='float64'"
    if "derivative" in text or "implement" in text:
        return "the model has no second derivative: replace that operation"
    return "torch cannot differentiate the model and the loss twice as they are written"
