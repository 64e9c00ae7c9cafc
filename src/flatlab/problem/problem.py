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
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import UserError, unknown
from ..losses import LOSSES, Loss, as_loss
from .batches import Batch, batches_of
from .matrix import Matrix
from .operators import operator
from .selection import layer_of, select

MODES = {
    "eval": "dropout off, BatchNorm with its running statistics",
    "train": "BatchNorm with the statistics of each batch as it is split here; no dropout",
    "recomputed": "as eval, with BatchNorm statistics recomputed on all of this data",
}
KINDS = {
    "hessian": "∇²L",
    "ggn": "(1/n) Σ J_iᵀ (∂²ℓ_i/∂f²) J_i, the Gauss–Newton part of the Hessian",
    "fisher": "(1/n) Σ ∇ℓ_i ∇ℓ_iᵀ, the empirical Fisher",
    "gram": "G = (1/n) Σ J_iᵀ J_i, the Gram matrix of the model's gradients",
}

# Examples passed through the network together, where their number does not matter.
PIECE = 128


class Problem:
    """A model, a loss and data.

    It works on a deep copy, so the user's model is left as it is: parameters, buffers, gradients,
    flags and hooks.

    Args:
        model: Any module from a batch of inputs to a batch of outputs.
        loss: A callable (outputs, y) → scalar mean over the batch, a flatlab Loss, or a name.
        data: A pair (x, y), a Dataset (its training part) or a loader of such pairs.
        mode: One of `MODES`.
        params: Name patterns or layers; None for all trainable parameters.
        dtype: "float32" or "float64" to measure in; None keeps the model's.
        batch_size: How a pair or a Dataset is cut; None for one batch in mode "train" and for
            pieces of `PIECE` elsewhere, where it does not matter and small ones are faster.
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
        if not isinstance(model, nn.Module):
            raise UserError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        if mode not in MODES:
            raise unknown("mode", str(mode), MODES)
        self.mode, self.loss, self.loss_name = mode, *_loss_of(loss)
        self.model = _copy(model, dtype)
        self.params = select(self.model, params)
        for name, p in self.model.named_parameters():
            if not bool(torch.isfinite(p).all()):
                raise UserError(f"the parameter {name} holds NaN or infinity: nothing to measure")
            p.requires_grad_(name in self.params)
        first = next(iter(self.params.values()))
        self.dtype, self.device = first.dtype, first.device
        found = batches_of(data, batch_size)
        if batch_size is None and mode != "train" and len(found) == 1:
            found = _cut(*found[0])
        self.batches = [self._placed(batch) for batch in found]
        self.n = sum(len(x) for x, _ in self.batches)
        self.size = sum(p.numel() for p in self.params.values())
        self.reference = None if reference is None else self._flat(reference)
        with kernels():
            self._set_mode()
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
        return x, y

    def _set_mode(self) -> None:
        self.model.train(self.mode == "train")
        norms = [m for m in self.model.modules() if isinstance(m, _BatchNorm)]
        if self.mode == "train":
            for norm in norms:  # batch statistics, and no running ones to write to
                norm.track_running_stats = False
                norm.running_mean = norm.running_var = norm.num_batches_tracked = None
        elif self.mode == "recomputed":
            for norm in norms:
                norm.train()
                norm.momentum = 1.0
            with torch.no_grad():
                self.model(torch.cat([x for x, _ in self.batches]))
            self.model.eval()

    @torch.no_grad()
    def _check(self) -> None:
        x, y = self.batches[0]
        outputs = self._outputs(x)
        self._check_labels(outputs)
        value, again = self._loss(outputs, y), self._loss(self._outputs(x), y)
        if value.ndim != 0:
            raise UserError(
                f"the loss returned shape {tuple(value.shape)}, it must be a scalar mean over the "
                "batch: use reduction='mean'"
            )
        if not bool(torch.isfinite(value)):
            raise UserError(f"the loss is {float(value)} on the first batch: nothing to measure")
        if not torch.allclose(value, again, rtol=1e-5, atol=0):
            raise UserError(
                f"the model is not deterministic: two passes over one batch gave the losses "
                f"{float(value):.6g} and {float(again):.6g}. Switch dropout and random "
                "augmentation off, or measure in mode='eval'"
            )

    def _outputs(self, x: Tensor) -> Tensor:
        try:
            outputs: Any = self.model(x)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise UserError(
                f"the model failed on a batch of shape {tuple(x.shape)} and {x.dtype}: "
                f"{_first_line(error)}"
            ) from None
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
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # mse_loss warns when shapes broadcast
                value: Tensor = self.loss(outputs, y)
        except (RuntimeError, ValueError, IndexError, TypeError, UserWarning) as error:
            raise UserError(
                f"the loss {self.loss_name} failed on outputs {tuple(outputs.shape)} and labels "
                f"{tuple(y.shape)} ({y.dtype}): {_first_line(error)}"
            ) from None
        return value

    def _check_labels(self, outputs: Tensor) -> None:
        """Class labels must name an output; torch itself may read out of bounds."""
        labels = [y for _, y in self.batches]
        if labels[0].is_floating_point() or outputs.ndim < 2 or labels[0].dtype == torch.bool:
            return
        low = min(int(y.min()) for y in labels)
        high = max(int(y.max()) for y in labels)
        if labels[0].shape != outputs.shape and not 0 <= low <= high < outputs.shape[1]:
            raise UserError(
                f"labels lie between {low} and {high}, the model has outputs 0 to "
                f"{outputs.shape[1] - 1}"
            )

    @property
    def has_batchnorm(self) -> bool:
        """Whether some layer is a BatchNorm."""
        return any(isinstance(module, _BatchNorm) for module in self.model.modules())

    @property
    def layers(self) -> dict[str, slice]:
        """Where each layer's parameters stand in the flat vector, in order."""
        spans: dict[str, slice] = {}
        start = 0
        for name, p in self.params.items():
            layer, stop = layer_of(name), start + p.numel()
            if layer in spans and spans[layer].stop != start:  # not beside its siblings
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
        """Stand at θ + step for a while; θ is restored bit by bit."""
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
        """Return L(θ); batches are weighted by their number of examples, the sum is in float64."""
        with kernels():
            return sum(
                float(self._loss(self._outputs(x), y).double()) * len(x) / self.n
                for x, y in self.batches
            )

    def value_and_gradient(self) -> tuple[float, Tensor]:
        """Return L(θ) and ∇L(θ) as a flat vector."""
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

    def thinned(self, step: int) -> Problem:
        """Return the same problem on every step-th example only."""
        made = copy.copy(self)
        made.__dict__.pop("outputs", None)
        x = torch.cat([x for x, _ in self.batches])[::step]
        y = torch.cat([y for _, y in self.batches])[::step]
        made.batches, made.n = _cut(x, y), len(x)
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
        with kernels():
            made = operator(kind, self.model, self.loss, list(self.params.values()), self.batches)

        def product(vector: Tensor) -> Tensor:
            try:
                with kernels(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # forward mode still uses the old torch.jit
                    result: Tensor = made @ vector
            except RuntimeError as error:  # torch's NotImplementedError is one
                text = _first_line(error)
                known = "derivative" in text or "implement" in text
                hint = "try less data or smaller batches"
                if known:
                    hint = "the model has no second derivative: replace that operation"
                raise UserError(f"a product with the {kind} failed: {text}; {hint}") from None
            return result

        return Matrix(kind, self.size, product, self.dtype, self.device)


@contextlib.contextmanager
def kernels() -> Iterator[None]:
    """Use the attention kernel that has second derivatives."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def _cut(x: Tensor, y: Tensor) -> list[Batch]:
    return list(zip(torch.split(x, PIECE), torch.split(y, PIECE), strict=True))


def _copy(model: nn.Module, dtype: str | None) -> nn.Module:
    try:
        made = copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:
        raise UserError(f"the model cannot be copied: {_first_line(error)}") from None
    for p in made.parameters():
        p.grad = None
    if dtype is not None:
        if dtype not in ("float32", "float64"):
            raise UserError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
        made = made.to(getattr(torch, dtype))
    return made


def _loss_of(loss: Any) -> tuple[Any, str]:
    """Return the loss as a callable and its name on cards."""
    if isinstance(loss, str) and loss == "cross_entropy":
        return nn.functional.cross_entropy, loss
    if isinstance(loss, str) and loss not in LOSSES:
        raise unknown("loss", loss, [*LOSSES, "cross_entropy"])
    if isinstance(loss, str | Loss):
        made = as_loss(loss)
        return made.torch, made.name
    if not callable(loss):
        raise UserError(f"loss must be a callable (outputs, y) -> mean, or a name, got {loss!r}")
    if getattr(loss, "reduction", "mean") != "mean":
        raise UserError(
            f"loss has reduction={loss.reduction!r}: measures are of the mean loss, use 'mean'"
        )
    return loss, getattr(loss, "__name__", type(loss).__name__)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
