"""The function that is measured: L(θ) = (1/n) Σ ℓ(f(x_i; θ), y_i), at one θ, on fixed data."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import FAILURES, FlatlabError, UserError, unknown
from . import meaning
from .batches import Batch, batches_of, chosen, cut, joined
from .copying import copied, copied_again, only_tensor, require_numbers
from .fitting import Activations, require_copy, require_data, require_dense
from .graph import checkpointed
from .kernels import kernels as kernels
from .kernels import require_numbers_of, worded
from .losses import doubled, evaluate, first_line, loss_of, raised, require_bent
from .operators import BACKWARD, Matrix, operator
from .preconditioner import GIVE, Preconditioner, preconditioner_of
from .selection import flat_reference, layer_of, select
from .statistics import MODES as MODES
from .statistics import require_mode, set_mode

KINDS = {
    "hessian": "∇²L",
    "ggn": "(1/n) Σ J_iᵀ (∂²ℓ_i/∂f²) J_i, the Gauss–Newton part of the Hessian",
    "fisher": "(1/n) Σ ∇ℓ_i ∇ℓ_iᵀ, the empirical Fisher",
    "gram": "G = (1/n) Σ J_iᵀ J_i, the Gram matrix of the model's gradients",
}

# Examples passed through the network together, if the number does not matter.
PIECE = 128

# Attributes computed from the data and θ, forgotten by copies and at another θ.
CACHED = ("outputs", "precise", "known")


class Problem:
    """A model, a loss and data.

    It works on a deep copy, so the user's model keeps its parameters, buffers, gradients, flags and
    hooks. Hooks are copied with the model, because they may be part of its function, and are called
    in every pass.

    The arguments are those of `flatlab.measure`. A model may also return something that has its
    outputs as `logits` or as its only entry, and a pair may be a dict of one input and its labels.
    That the loss of a batch is the mean of the losses of its examples is checked. Without a
    `batch_size`, a pair or a Dataset is one batch in mode "train" and batches of `PIECE` in the
    other modes, whose result does not depend on the size and where small batches are faster.

    Attributes `params` are the selected parameters of the copy by name, `size` is how many numbers
    they hold, and `n` the number of examples. `mixed` says whether outputs depend on other examples
    of their batch; then the batches that are given are not cut.
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
        preconditioner: Any = None,
    ):
        require_mode(mode)
        self.mode, self.loss, self.loss_name = mode, *loss_of(loss)
        require_copy(model, dtype)
        self.model = copied(model, dtype)
        self.params = select(self.model, params)
        require_numbers(self.model, self.params)
        for name, p in self.model.named_parameters():
            p.requires_grad_(name in self.params)
        first = next(iter(self.params.values()))
        self.dtype, self.device = first.dtype, first.device
        found = batches_of(data, batch_size)
        meaning.require_signs(loss, found)
        pieces = batch_size is None and mode != "train" and len(found) == 1
        if pieces:
            found = cut(found[0], PIECE)
        if self.device.type == "cpu":
            require_data(found, self.dtype)
        self.batches = [self._placed(batch) for batch in found]
        self.n = sum(len(x) for x, _ in self.batches)
        self.size = sum(p.numel() for p in self.params.values())
        self.reference = None if reference is None else flat_reference(self.params, reference)
        self._preconditioner = preconditioner, dict(model.named_parameters())
        self.model.eval()
        self.activations = Activations(self.batches, self._pass)
        self.activations.require("a pass over a batch")
        with kernels():
            set_mode(self.model, mode, self.batches, self._outputs)
            self.mixed = self._mixes()
            if self.mixed and pieces:  # the batch that was given decides the function
                self.batches = joined(self.batches)
                self.activations = Activations(self.batches, self._pass)
                self.activations.require("a pass over a batch")
            self._check(dict(model.named_parameters()))

    def _placed(self, batch: Batch) -> Batch:
        x, y = (
            part.to(self.device, self.dtype if part.is_floating_point() else None) for part in batch
        )
        whole = not y.is_floating_point() and not y.is_complex() and y.dtype != torch.bool
        if whole and (y.dtype == torch.uint8 or meaning.takes_classes(self.loss)):
            y = y.long()  # the dtype of class labels that every operation takes
        return x, y

    @torch.no_grad()
    def _mixes(self) -> bool:
        """Return whether an output depends on other examples of its batch.

        One half of a batch is replaced by copies of another example, then the other half. The same
        kernels run on batches of the same shape, so outputs of the rest must not change by a bit.
        """
        x = max((x for x, _ in self.batches), key=len)
        half = len(x) // 2
        if not half:
            return False
        before = self._outputs(x.clone())  # memory aligned as that of the copies below
        for kept, others in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
            other = x.clone()
            other[others] = x[kept][0]
            moved = (self._outputs(other)[kept] - before[kept]).abs().max()
            if bool(moved > 0):
                again = (self._outputs(x.clone()) - before).abs().max()  # sums on a GPU
                return bool(moved > meaning.ORDER * again)
        return False

    @torch.no_grad()
    def _check(self, known: Mapping[str, Tensor]) -> None:
        """Check that L is a mean over all of the data and a function of the outputs; keep them.

        The user's own code might refer to the parameters of its own model, `known`.
        """
        self.outputs = [self._outputs(x) for x, _ in self.batches]
        meaning.require_labels(self.loss, self.pairs)
        meaning.require_finite(self.loss, self.loss_name, self.pairs)
        (x, y), outputs = self.batches[0], self.outputs[0]
        advice = "switch dropout and random augmentation off"
        advice += ", or measure in eval mode" if self.mode != "eval" else ""
        meaning.require_same("model", outputs, self._outputs(x), advice)
        first, second = self._loss(outputs, y), self._loss(outputs, y)
        meaning.require_same("loss", first, second, "it must not draw at random")
        meaning.require_mean(self.loss, self.loss_name, self.pairs)
        with torch.enable_grad():
            again = self._outputs(x)
            leaf = outputs.detach().requires_grad_()
            loss = self._loss(leaf, y)
        meaning.require_copied(again, known)
        meaning.require_outputs_only(self.loss_name, loss, leaf, known)
        self._checkpointed = checkpointed(again)
        self._flat_model, self._flat_loss = not again.requires_grad, not loss.requires_grad

    def preconditioner(self) -> Preconditioner:
        """Return the diagonal P of the optimizer that was given; raise if there is none."""
        given, own = self._preconditioner
        if given is None:
            raise UserError(f"there is no preconditioner: {GIVE}")
        return preconditioner_of(given, own, self.params)

    def require_gradient(self, loss: bool = True) -> None:
        """Raise if the outputs cannot be differentiated in θ, or the loss in the outputs."""
        if self._checkpointed:
            raise UserError(
                "the model uses torch.utils.checkpoint with use_reentrant=True, which hides its "
                "parameters from torch.autograd.grad: write use_reentrant=False"
            )
        if self._flat_model:
            raise UserError(
                "the model's outputs have no gradient in the selected parameters: they are not "
                "used, or cut off by detach(), no_grad() or checkpoint(use_reentrant=True)"
            )
        if loss and self._flat_loss:
            raise UserError(
                f"the loss {self.loss_name} has no gradient in the model's outputs: it is constant,"
                " not differentiable, or cut off by detach() or no_grad()"
            )

    def _outputs(self, x: Tensor) -> Tensor:
        try:
            outputs = only_tensor(self.model(x))
        except FlatlabError:  # it already says what is wrong
            raise
        except FAILURES as error:
            text = first_line(error)
            if "more than 1 value per channel" in text:
                text = (
                    "BatchNorm needs more than one value for each channel to take statistics of; "
                    "choose batch_size so that no batch has one example, or measure in mode='eval'"
                )
            if "does not require grad" in text:
                text += ". Wrap the part of forward that differentiates in torch.enable_grad()"
            raise UserError(
                f"the model failed on a batch of shape {tuple(x.shape)} and {x.dtype}: {text}"
            ) from error
        if outputs.ndim == 0 or len(outputs) != len(x):
            raise UserError(
                f"the model gave shape {tuple(outputs.shape)} for {len(x)} examples: one row for "
                "each is needed"
            )
        if not outputs.numel():
            raise UserError(
                f"the model gave shape {tuple(outputs.shape)}: each row needs at least one output"
            )
        if not (outputs.is_floating_point() or outputs.is_complex()):
            raise UserError(
                f"the model's outputs are {outputs.dtype}, which have no gradient: return them "
                "before rounding, argmax or a comparison"
            )
        # A model that differentiates inside has switched gradients on.
        return outputs if torch.is_grad_enabled() else outputs.detach()

    def _pass(self, batch: Batch) -> Tensor:
        return self._loss(self._outputs(batch[0]), batch[1])

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return evaluate(self.loss, self.loss_name, outputs, y)

    def _raised_loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        loss, outputs, y = raised(self.loss, outputs, y)
        return evaluate(loss, self.loss_name, outputs, y)

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

    def __copy__(self) -> Problem:
        """Return the same problem without what was computed from its data and θ."""
        made = object.__new__(type(self))
        made.__dict__ = {name: each for name, each in vars(self).items() if name not in CACHED}
        return made

    def of(self, rows: NDArray[np.int64]) -> Problem:
        """Return the same problem on some of its examples, by their indices."""
        made, found = copy.copy(self), joined(chosen(self.batches, rows))
        small = found if self.mixed else [part for batch in found for part in cut(batch, PIECE)]
        made.batches, made.n = small, len(rows)
        return made

    def split(self, vector: Tensor) -> list[Tensor]:
        """Return a flat vector as tensors of the parameters' shapes."""
        sizes = [p.numel() for p in self.params.values()]
        pieces = torch.split(vector.to(self.device, self.dtype), sizes)
        return [part.view_as(p) for part, p in zip(pieces, self.params.values(), strict=True)]

    @contextlib.contextmanager
    def moved(self, step: Tensor) -> Iterator[None]:
        """Move to θ + step inside the block; afterwards θ is restored bit by bit."""
        before = [p.detach().clone() for p in self.params.values()]
        here = {name: vars(self).pop(name) for name in CACHED if name in vars(self)}
        with torch.no_grad():
            for p, part in zip(self.params.values(), self.split(step), strict=True):
                p.add_(part)
        try:
            yield
        finally:
            with torch.no_grad():
                for p, old in zip(self.params.values(), before, strict=True):
                    p.copy_(old)
            for name in CACHED:
                vars(self).pop(name, None)
            vars(self).update(here)

    @torch.no_grad()
    def value(self) -> float:
        """Return L(θ); batches are weighted by their number of examples and summed in float64.

        The loss of the outputs is computed in float64 too, if it accepts that.
        """
        with kernels():
            return sum(
                float(self._raised_loss(self._outputs(x), y)) * len(x) / self.n
                for x, y in self.batches
            )

    def value_and_gradient(self) -> tuple[float, Tensor]:
        """Return L(θ) and ∇L(θ) as a flat vector."""
        self.require_gradient()
        params, value = list(self.params.values()), 0.0
        total = torch.zeros(self.size, dtype=self.dtype, device=self.device)
        with kernels():
            for x, y in self.batches:
                loss = self._raised_loss(self._outputs(x), y)
                parts = torch.autograd.grad(loss, params, materialize_grads=True)
                total += torch.cat([part.flatten() for part in parts]) * (len(x) / self.n)
                value += float(loss.detach()) * len(x) / self.n
        return value, total

    @cached_property
    def outputs(self) -> list[Tensor]:
        """The model's outputs at θ, batch by batch."""
        with torch.no_grad(), kernels():
            return [self._outputs(x) for x, _ in self.batches]

    @property
    def pairs(self) -> list[Batch]:
        """The outputs and labels of every batch."""
        return [(f, y) for f, (_, y) in zip(self.outputs, self.batches, strict=True)]

    @cached_property
    def precise(self) -> Problem:
        """The same problem in float64: model, inputs, float labels and the loss's own numbers.

        It is this problem itself if that is in float64 already, or the model does not run in
        float64 or does not fit into memory, so `precise.dtype` says which. The copy shares nothing
        with this problem.
        """
        if self.dtype == torch.float64:
            return self
        made = copy.copy(self)
        try:
            if self.device.type == "cpu":
                require_copy(self.model, "float64")
                require_data(self.batches, torch.float64)
                self.activations.require("a pass in float64 over a batch", 2)
            made.model = copied_again(self.model).double()
            named = dict(made.model.named_parameters())
            made.params = {name: named[name] for name in self.params}
            made.dtype, made.loss = torch.float64, doubled(self.loss)
            made.batches = [made._placed(batch) for batch in self.batches]
            if self.mode == "recomputed":  # its statistics too
                set_mode(made.model, self.mode, made.batches, made._outputs)
            ran = all(outputs.dtype == torch.float64 for outputs in made.outputs)
            made.value()
        except (FlatlabError, RuntimeError, TypeError):
            return self
        return made if ran else self

    @cached_property
    def known(self) -> dict[str, Any]:
        """What was computed of it at θ, kept for the next measure."""
        return {}

    def dense(
        self, kind: str = "hessian", fits: Callable[[float], bool] = lambda done: True
    ) -> Tensor | None:
        """Return a whole matrix of `KINDS`, symmetric, in float64, computed on `precise`.

        Now and then it asks whether to go on, `fits(share done)`; None if not.
        """
        from .dense import dense  # which imports this module

        self.require(kind)
        require_dense(self.size)
        with worded(kind, self.precise.dtype):
            found = dense(self.precise, kind, fits)
            return found if found is None else require_numbers_of(kind, found)

    def matrix(self, kind: str = "hessian") -> Matrix:
        """Return a curvature matrix of `KINDS`; products are exact up to rounding."""
        self.require(kind)
        if kind == "hessian":
            self.activations.require("the graph of the gradient of a batch", BACKWARD)
        with kernels():
            made = operator(kind, self.model, self.loss, list(self.params.values()), self.batches)

        def product(vector: Tensor) -> Any:
            with worded(kind, self.dtype):
                return require_numbers_of(kind, made @ vector)

        return Matrix(self.size, product, self.dtype, self.device)

    def require(self, kind: str) -> None:
        """Raise if there is no such matrix, or if it is zero or undefined by its definition."""
        if kind not in KINDS:
            raise unknown("matrix", kind, KINDS)
        self.require_gradient(loss=kind != "gram")
        if kind == "ggn":
            require_bent(self.loss, self.loss_name, self.pairs)
