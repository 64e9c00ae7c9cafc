"""Norms and squares of per-example gradients without the gradients.

For a layer z = W u with input u and back-propagated δ = ∂(v·f)/∂z, one example's gradient is
Σ_t δ_t u_tᵀ over positions t (pixels, tokens; one for a plain linear layer). For one position its
squared norm is ‖δ‖²‖u‖². For several it is computed from that sum, or as
Σ_{ts} ⟨δ_t, δ_s⟩⟨u_t, u_s⟩, whichever is cheaper.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold
from torch.nn.modules.batchnorm import _BatchNorm

from .batches import drawn, joined
from .problem import Problem

# Number of random examples on which the layers' gradients must add up to autograd's.
TRIED = 16
# Examples back-propagated together, few enough that patches of all layers roughly fit in the cache.
CHUNK = 50


class Ghost:
    """The layers of a problem, all of known kinds, with each parameter used once."""

    def __init__(self, problem: Problem, owners: dict[str, nn.Module]):
        self.problem, self.owners = problem, owners
        self.layers = list(dict.fromkeys(owners.values()))

    @classmethod
    def of(cls, problem: Problem) -> Ghost | None:
        """Return the layers, or None if a parameter is not in such a layer.

        That no parameter is also used elsewhere is checked on `TRIED` random examples: the
        gradients of the layers must add up to autograd's. If only a fraction q of the examples use
        a parameter elsewhere, this is missed with probability about (1 − q)^16.
        """
        owners: dict[str, nn.Module] = {}
        for prefix, module in problem.model.named_modules():
            for name, _ in module.named_parameters(prefix, recurse=False, remove_duplicate=False):
                if name in problem.params:
                    owners[name] = module
        if set(owners) != set(problem.params) or not all(map(_known, owners.values())):
            return None
        ghost = cls(problem, {name: owners[name] for name in problem.params})
        return ghost if ghost._adds_up() else None

    def pieces(self, problem: Problem) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield (x, outputs, y) in chunks that fit in the cache."""
        for (x, y), outputs in zip(problem.batches, problem.outputs, strict=True):
            parts = (torch.split(part, CHUNK) for part in (x, outputs, y))
            yield from zip(*parts, strict=True)

    def norms(self, x: Tensor, times: int = 1) -> Callable[[Tensor], dict[str, Tensor]]:
        """Return v ↦ ‖J_iᵀ v_i‖² by parameter, for each example of x; called `times` times."""
        backward, grams = self._backward(x), dict[nn.Module, Tensor]()

        def norms(covectors: Tensor) -> dict[str, Tensor]:
            return {
                name: delta.sum(1).square().sum(1)
                if u is None
                else _weight_norms(self.owners[name], delta, u, grams, times)
                for name, delta, u in backward(covectors)
            }

        return norms

    def squares(
        self, x: Tensor, weights: list[Tensor], vectors: list[Tensor], tick: Callable[[], None]
    ) -> Tensor:
        """Return Σ_ic w_ic (J_iᵀ v_ic)² of all parameters in one vector, in float64."""
        backward, inputs = self._backward(x), dict[str, Tensor]()
        zero = torch.zeros((), dtype=torch.float64, device=x.device)
        totals = dict.fromkeys(self.owners, zero)
        for weight, v in zip(weights, vectors, strict=True):
            for name, delta, u in backward(v):
                if u is None:
                    rows = delta.sum(1)
                elif _scales(self.owners[name]):
                    rows = (delta * u).sum(1)
                elif delta.shape[1] > 1:
                    rows = torch.bmm(delta.transpose(1, 2), u).flatten(1)
                else:  # Σ_ic w (δ_k u_d)² = Σ_i (Σ_c w δ_k²) u_d²: u enters after the loop
                    inputs[name] = u[:, 0].double().square()
                    totals[name] = totals[name] + weight[:, None] * delta[:, 0].double().square()
                    continue
                totals[name] = totals[name] + weight @ rows.double().square()
            tick()
        for name, u in inputs.items():
            totals[name] = (totals[name].T @ u).flatten()
        return torch.cat(list(totals.values())) if weights else zero

    def _backward(
        self, x: Tensor
    ) -> Callable[[Tensor], Iterator[tuple[str, Tensor, Tensor | None]]]:
        """Return v ↦ (name, δ, u) of every parameter; u is None for a bias."""
        outputs, inputs, marks = self._forward(x)
        patches = {m: _patches(m, u) for m, u in inputs.items()}

        def backward(covectors: Tensor) -> Iterator[tuple[str, Tensor, Tensor | None]]:
            deltas = torch.autograd.grad(
                outputs,
                [marks[m] for m in self.layers],
                covectors,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            found = {m: _positions(m, d) for m, d in zip(self.layers, deltas, strict=True)}
            for name, module in self.owners.items():
                yield name, found[module], patches[module] if _is_weight(name) else None

        return backward

    def _forward(
        self, x: Tensor
    ) -> tuple[Tensor, dict[nn.Module, Tensor], dict[nn.Module, Tensor]]:
        """Run the model and return its outputs, and each layer's input and output."""
        inputs: dict[nn.Module, Tensor] = {}
        marks: dict[nn.Module, Tensor] = {}

        def keep(module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
            if module in marks:
                raise _UsedTwice
            inputs[module], marks[module] = given[0].detach(), out
            return out.clone()  # in-place operations must not change the marked tensors

        with contextlib.ExitStack() as stack:
            for module in self.layers:
                handle = module.register_forward_hook(keep)
                stack.callback(handle.remove)
            outputs = self.problem.model(x)
        return outputs, inputs, marks

    def _adds_up(self) -> bool:
        rows = joined(drawn(self.problem.batches, TRIED, 0, "ghost"), None)
        return all(self._adds_up_on(x) for x, _ in rows)

    def _adds_up_on(self, x: Tensor) -> bool:
        try:
            outputs, inputs, marks = self._forward(x)
        except _UsedTwice:
            return False
        if set(marks) != set(self.layers) or not outputs.requires_grad:
            return False
        # Any covector works; this one has no symmetry.
        v = torch.linspace(0.5, 1.5, outputs.numel(), dtype=outputs.dtype).view_as(outputs)
        v = v.to(outputs.device)
        params = list(self.problem.params.values())
        marked = [marks[m] for m in self.layers]
        true = torch.autograd.grad(
            outputs, params, v, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        found = torch.autograd.grad(
            outputs, marked, v, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        if not _example_by_example(outputs, marked, v):
            return False
        deltas = dict(zip(self.layers, found, strict=True))
        for (name, module), expected in zip(self.owners.items(), true, strict=True):
            delta = _positions(module, deltas[module])
            if _is_weight(name):
                u = _patches(module, inputs[module])
                by_layer = (delta * u).sum((0, 1)) if _scales(module) else (
                    torch.einsum("btk,btd->kd", delta, u)
                )  # fmt: skip
            else:
                by_layer = delta.sum((0, 1))
            scale = expected.abs().max() + torch.finfo(expected.dtype).tiny
            error = (by_layer.reshape_as(expected) - expected).abs().max() / scale
            if not error < 1e-3:  # another use changes the sum by far more than rounding
                return False
        return True


class _UsedTwice(Exception):
    pass


def _example_by_example(outputs: Tensor, marked: list[Tensor], v: Tensor) -> bool:
    """Return whether the first axis of every layer's output counts the examples.

    It does not in a network that puts positions first, or that joins all tokens of a batch into one
    axis: there the output of one example depends on all rows of a layer.
    """
    if any(len(mark) != len(outputs) for mark in marked):
        return False
    one = torch.zeros_like(v)
    one[0] = v[0]
    found = torch.autograd.grad(outputs, marked, one, allow_unused=True, materialize_grads=True)
    return not any(bool(delta[1:].any()) for delta in found)


def _is_weight(name: str) -> bool:
    return name.rpartition(".")[2] == "weight"


def _scales(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm)


def _known(module: nn.Module) -> bool:
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        plain = type(module) in (nn.Conv1d, nn.Conv2d) and not isinstance(module.padding, str)
        return plain and module.groups == 1 and module.padding_mode == "zeros"
    if isinstance(module, _BatchNorm):
        return not module.training and module.running_mean is not None
    return type(module) is nn.Linear


def _positions(module: nn.Module, delta: Tensor) -> Tensor:
    """Return δ as (examples, positions, outputs)."""
    if isinstance(module, nn.Linear):
        return delta.flatten(1, -2) if delta.ndim > 2 else delta[:, None]
    return delta.flatten(2).transpose(1, 2) if delta.ndim > 2 else delta[:, None]


def _patches(module: nn.Module, u: Tensor) -> Tensor:
    """Return the inputs that multiply the weight, as (examples, positions, inputs)."""
    if isinstance(module, nn.Linear):
        return u.flatten(1, -2) if u.ndim > 2 else u[:, None]
    if isinstance(module, _BatchNorm):
        shape = [1, -1] + [1] * (u.ndim - 2)
        mean, var = module.running_mean, module.running_var
        assert mean is not None and var is not None  # a BatchNorm in eval mode
        return _positions(module, (u - mean.view(shape)) / (var.view(shape) + module.eps).sqrt())
    flat = isinstance(module, nn.Conv1d)
    kernel, dilation, padding, stride = (
        (least, getattr(module, name)[0]) if flat else getattr(module, name)
        for name, least in (("kernel_size", 1), ("dilation", 1), ("padding", 0), ("stride", 1))
    )
    patches = unfold(u[:, :, None] if flat else u, kernel, dilation, padding, stride)
    return patches.transpose(1, 2)


def _weight_norms(
    module: nn.Module, delta: Tensor, u: Tensor, grams: dict[nn.Module, Tensor], times: int
) -> Tensor:
    if _scales(module):
        return (delta * u).sum(1).square().sum(1)
    positions, rows, columns = delta.shape[1], delta.shape[2], u.shape[2]
    if positions == 1:
        return delta.square().sum((1, 2)) * u.square().sum((1, 2))
    if positions * (rows + columns / times) < rows * columns:  # ⟨u_t, u_s⟩ does not depend on v
        if module not in grams:
            grams[module] = torch.bmm(u, u.transpose(1, 2))
        return (torch.bmm(delta, delta.transpose(1, 2)) * grams[module]).sum((1, 2))
    return torch.bmm(delta.transpose(1, 2), u).square().sum((1, 2))
