"""Norms and squares of per-example gradients without the gradients.

For a layer z = W u with input u and back-propagated δ = ∂(v·f)/∂z, one example's gradient is
Σ_t δ_t u_tᵀ over positions t (pixels, tokens; one for a plain linear layer). For one position its
squared norm is ‖δ‖²‖u‖². For several it is computed from that sum, or as
Σ_{ts} ⟨δ_t, δ_s⟩⟨u_t, u_s⟩, whichever is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold
from torch.nn.modules.batchnorm import _BatchNorm

from .batches import drawn
from .problem import Problem
from .statistics import hooked

# Number of random examples on which the layers' gradients must add up to autograd's.
TRIED = 16
# Both sums round by about this many units in the last place of the sum of their terms' sizes.
ROUNDING = 1e3
# Examples back-propagated together, few enough that patches of all layers roughly fit in the cache.
CHUNK = 50


class Ghost:
    """The layers of a problem, all of known kinds, with each parameter used once."""

    def __init__(self, problem: Problem, owners: dict[str, nn.Module]):
        self.problem, self.owners = problem, owners

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
        rows = drawn(problem.batches, TRIED, 0, "ghost")
        return ghost if all(ghost._adds_up(x) for x, _ in rows) else None

    def norms(self, x: Tensor, times: int) -> Callable[[Tensor], dict[str, Tensor]]:
        """Return v ↦ ‖J_iᵀ v_i‖² by parameter, for each example of x; called `times` times."""
        run, grams, owners = _Pass(self, x), dict[nn.Module, Tensor](), self.owners
        return lambda v: {
            name: _norms(owners[name], delta, u, grams, times) for name, delta, u in run.backward(v)
        }

    def squares(
        self, x: Tensor, weights: list[Tensor], vectors: list[Tensor], tick: Callable[[], None]
    ) -> Tensor:
        """Return Σ_ic w_ic (J_iᵀ v_ic)² of all parameters in one vector, in float64."""
        run, inputs = _Pass(self, x), dict[str, Tensor]()
        zero = torch.zeros((), dtype=torch.float64, device=x.device)
        totals = dict.fromkeys(self.owners, zero)
        for weight, v in zip(weights, vectors, strict=True):
            for name, delta, u in run.backward(v):
                module = self.owners[name]
                if u is not None and not _scales(module) and delta.shape[1] == 1:
                    # Σ_ic w (δ_k u_d)² = Σ_i (Σ_c w δ_k²) u_d²: u enters after the loop
                    inputs[name] = u[:, 0].double().square()
                    totals[name] = totals[name] + weight[:, None] * delta[:, 0].double().square()
                else:
                    rows = _rows(module, delta, u).double().square()
                    totals[name] = totals[name] + weight @ rows
            tick()
        for name, u in inputs.items():
            totals[name] = (totals[name].T @ u).flatten()
        return torch.cat(list(totals.values())) if weights else zero

    def _adds_up(self, x: Tensor) -> bool:
        try:
            run = _Pass(self, x)
        except _UsedTwice:
            return False
        outputs = run.outputs
        if set(run.marks) != set(self.owners.values()) or not outputs.requires_grad:
            return False
        # Any covector works; this one has no symmetry.
        v = torch.linspace(0.5, 1.5, outputs.numel(), dtype=outputs.dtype).view_as(outputs)
        v = v.to(outputs.device)
        if not run.example_by_example(v):
            return False
        params = list(self.problem.params.values())
        true = torch.autograd.grad(outputs, params, v, retain_graph=True, materialize_grads=True)
        for (name, delta, u), expected in zip(run.backward(v), true, strict=True):
            # Their sum over examples: positions of all examples count as those of one.
            delta, u = delta.flatten(0, 1)[None], None if u is None else u.flatten(0, 1)[None]
            module, given = self.owners[name], expected.flatten()
            apart = (_rows(module, delta, u).flatten() - given).abs()
            terms = _rows(module, delta.abs(), None if u is None else u.abs())
            largest = torch.maximum(terms.max(), given.abs().max())
            if not bool((apart <= ROUNDING * torch.finfo(given.dtype).eps * largest).all()):
                return False  # another use of the parameter
        return True


class _UsedTwice(Exception):
    pass


class _Pass:
    """A forward pass that keeps the input and the output (the mark) of every layer."""

    def __init__(self, ghost: Ghost, x: Tensor):
        self.owners = ghost.owners
        self.inputs: dict[nn.Module, Tensor] = {}
        self.marks: dict[nn.Module, Tensor] = {}
        self.patches: dict[nn.Module, Tensor] = {}

        def keep(module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
            if module in self.marks:
                raise _UsedTwice
            self.inputs[module], self.marks[module] = given[0].detach(), out
            return out.clone()  # in-place operations must not change the marked tensors

        with hooked(set(self.owners.values()), keep):
            self.outputs = ghost.problem.model(x)

    def backward(self, covectors: Tensor) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """Yield (name, δ, u) of every parameter; u is None for a bias."""
        deltas = dict(zip(self.marks, self._pulled(covectors), strict=True))
        found = {module: _positions(module, delta) for module, delta in deltas.items()}
        for name, module in self.owners.items():
            weight = name.rpartition(".")[2] == "weight"
            if weight and module not in self.patches:
                self.patches[module] = _patches(module, self.inputs[module])
            yield name, found[module], self.patches[module] if weight else None

    def example_by_example(self, v: Tensor) -> bool:
        """Return whether the first axis of every layer's output counts the examples.

        It does not in a network that puts positions first, or that joins all tokens of a batch into
        one axis: there the output of one example depends on all rows of a layer.
        """
        if any(len(mark) != len(v) for mark in self.marks.values()):
            return False
        one = torch.zeros_like(v)
        one[0] = v[0]
        return not any(bool(delta[1:].any()) for delta in self._pulled(one))

    def _pulled(self, covectors: Tensor) -> tuple[Tensor, ...]:
        marks = list(self.marks.values())
        return torch.autograd.grad(
            self.outputs, marks, covectors, retain_graph=True, materialize_grads=True
        )


def _scales(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm)


def _known(module: nn.Module) -> bool:
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        plain = type(module) in (nn.Conv1d, nn.Conv2d) and not isinstance(module.padding, str)
        return plain and module.groups == 1 and module.padding_mode == "zeros"
    if isinstance(module, _BatchNorm):
        return not module.training and module.running_mean is not None
    return type(module) is nn.Linear


def _positions(module: nn.Module, tensor: Tensor) -> Tensor:
    """Return δ (or u) as (examples, positions, channels)."""
    if tensor.ndim <= 2:
        return tensor[:, None]
    linear = isinstance(module, nn.Linear)
    return tensor.flatten(1, -2) if linear else tensor.flatten(2).transpose(1, 2)


def _patches(module: nn.Module, u: Tensor) -> Tensor:
    """Return the inputs that multiply the weight, as (examples, positions, inputs)."""
    if isinstance(module, nn.Linear):
        return _positions(module, u)
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


def _rows(module: nn.Module, delta: Tensor, u: Tensor | None) -> Tensor:
    """Return every example's gradient in a bias (without u) or a weight, flattened."""
    if u is None:
        return delta.sum(1)
    if _scales(module):
        return (delta * u).sum(1)
    return torch.bmm(delta.transpose(1, 2), u).flatten(1)


def _norms(
    module: nn.Module, delta: Tensor, u: Tensor | None, grams: dict[nn.Module, Tensor], times: int
) -> Tensor:
    if u is not None and not _scales(module):
        positions, rows, columns = delta.shape[1], delta.shape[2], u.shape[2]
        if positions == 1:
            return delta.square().sum((1, 2)) * u.square().sum((1, 2))
        if positions * (rows + columns / times) < rows * columns:  # ⟨u_t, u_s⟩ does not depend on v
            if module not in grams:
                grams[module] = torch.bmm(u, u.transpose(1, 2))
            return (torch.bmm(delta, delta.transpose(1, 2)) * grams[module]).sum((1, 2))
    return _rows(module, delta, u).square().sum(1)
