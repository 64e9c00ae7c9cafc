"""m-SAM: every group of m examples has an ascent of its own. m = 1 is 1-SAM."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from ..errors import UserError, whole_number
from . import _foreach as foreach
from ._checks import LossFunction, check_mean, module, not_negative, scalar
from .passes import Noise, frozen_batchnorm
from .wrapper import Base, Stepped, WrappedOptimizer, adversary

Tensors = dict[str, Tensor]


class MSAM(WrappedOptimizer):
    """m-SAM (Foret et al. 2021, section 4.1; Andriushchenko & Flammarion 2022), on one device.

    A batch of n examples is split, in order, into groups S of m examples; the last may be
    smaller. With g_S the gradient of the mean loss of a group,

        G = Σ_S (|S|/n) g_S(θ + rho g_S(θ)/‖g_S(θ)‖),   θ ← base(θ, G)

    m = n is SAM; m = 1 is 1-SAM averaged over the batch. With rho = 0 in every group the step is
    the base optimizer's on the whole batch, bit by bit.

    Args:
        model: The network; parameters that do not require a gradient stay as they are.
        loss: loss(output, target), a scalar: the mean over the examples it is given. This is
            checked on the first batch.
        base: Class of the base optimizer; torch.optim.SGD if none is given.
        rho: Ascent radius.
        m: Examples in a group.
        chunk: Number of groups that "vmap" computes at once, each with its own copy of the gradient
            in memory; None for all.
        method: "vmap" computes groups together by torch.func; "loop" one after the other, with
            the same dropout mask in both passes and BatchNorm statistics updated once a group;
            "auto" takes "loop" for a model with active dropout or BatchNorm, and for a model that
            vmap refuses (functional dropout, for example); otherwise "vmap".
        params: Groups of the model's parameters or a base optimizer; None is all in one group.
        **options: Options of the base optimizer.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: LossFunction,
        base: Base | None = None,
        rho: float = 0.05,
        *,
        m: int = 1,
        chunk: int | None = None,
        method: Literal["auto", "vmap", "loop"] = "auto",
        params: Stepped | None = None,
        **options: Any,
    ):
        rho = not_negative("rho", rho)
        model = module(model, "give the network itself, and groups of its parameters as params")
        if not callable(loss):
            raise UserError(
                f"loss must be a function of output and target, got {type(loss).__name__}"
            )
        m = whole_number("m", m, least=1)
        chunk = None if chunk is None else whole_number("chunk", chunk, least=1)
        if method not in ("auto", "vmap", "loop"):
            raise UserError(f"unknown method {method!r}: allowed: auto, loop, vmap")
        chosen = [p for p in model.parameters() if p.requires_grad] if params is None else params
        super().__init__(chosen, base, {"rho": rho}, options)
        self.model, self.loss, self.m, self.chunk, self.method = model, loss, m, chunk, method
        self._used: dict[tuple[str, ...], set[str]] = {}
        self._checked = self._unmapped = False

    def step(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        """Take one step on a batch; return its mean loss at θ."""
        loss = self.gradient(x, y)
        self.base.step()
        return loss

    def gradient(self, x: Tensor, y: Tensor) -> Tensor:
        """Put G into .grad, to be clipped for instance; `base.step()` then takes the step.

        Returns the mean loss at θ.
        """
        if len(x) != len(y) or len(x) == 0:
            raise UserError(
                f"x and y must have the same number >= 1 of rows, got {len(x)}, {len(y)}"
            )
        radius = self._radii()
        climbs = any(radius.values())
        total = self._by_groups(x, y, radius) if climbs else self._together(x, y, radius)
        named = dict(self.model.named_parameters())
        for name in radius:
            named[name].grad = total.get(name)
        return total[""]

    def _radii(self) -> dict[str, float]:
        """Return rho by the name of each parameter that trains, negative where it is maximised."""
        names = {p: name for name, p in self.model.named_parameters()}
        found = {}
        for group in self.param_groups:
            for p in group["params"]:
                if p not in names:
                    raise UserError("a parameter group holds a tensor that is not in the model")
                if p.requires_grad:
                    found[names[p]] = adversary(group) * not_negative("rho", group["rho"])
        return found

    def _check_loss(self, x: Tensor, y: Tensor) -> None:
        """Refuse a loss that is not a mean over examples, on the first batch that is split."""
        if self._checked or len(x) <= self.m:
            return
        noise = Noise(p.device for p in self._tensors())
        try:
            with frozen_batchnorm(self.model):
                with torch.no_grad():
                    output = self.model(x)
                with torch.enable_grad():
                    check_mean(self.loss, output, y, self.m)
        finally:
            noise.replay()
        self._checked = True

    def _by_groups(self, x: Tensor, y: Tensor, radius: dict[str, float]) -> Tensors:
        """Return G by name, and the loss under "", by the method that the model allows."""
        self._check_loss(x, y)
        one_by_one = self._unmapped or _has_noise(self.model)
        if self.method == "loop" or (self.method == "auto" and one_by_one):
            return self._by_loop(x, y, radius)
        try:
            return self._by_vmap(x, y, radius)
        except torch.cuda.OutOfMemoryError:  # out of memory: `chunk` helps
            raise
        except RuntimeError as error:
            # vmap refuses random numbers before they are drawn (functional dropout, attention's),
            # and layers it does not know (GRU). It leaves the weights alone.
            if self.method == "vmap" and "called random operation" in str(error):
                raise UserError(
                    "the model draws random numbers, which method 'vmap' cannot: "
                    "choose method 'loop' or 'auto', or call model.eval()"
                ) from error
            if self.method == "vmap":
                raise
        total = self._by_loop(x, y, radius)  # the loop raises an error of the model's own again
        self._unmapped = True
        return total

    def _together(self, x: Tensor, y: Tensor, radius: dict[str, float]) -> Tensors:
        """Return the gradient of the batch at θ; parameters that it does not use are left out."""
        named = dict(self.model.named_parameters())
        with torch.enable_grad():
            loss = scalar(self.loss(self.model(x), y))
            found = torch.autograd.grad(loss, [named[n] for n in radius], allow_unused=True)
        used = {n: g for n, g in zip(radius, found, strict=True) if g is not None}
        return {**used, "": loss.detach()}

    def _by_vmap(self, x: Tensor, y: Tensor, radius: dict[str, float]) -> Tensors:
        """Return G by name, and the loss under "", from groups computed together."""
        names = tuple(radius)
        if names not in self._used:
            # torch.func gives 0 for an unused parameter; the base must see no gradient at all.
            noise = Noise(p.device for p in self._tensors())
            with frozen_batchnorm(self.model):
                self._used = {names: set(self._together(x[: self.m], y[: self.m], radius))}
            noise.replay()
        radius = {name: rho for name, rho in radius.items() if name in self._used[names]}
        named = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        fixed = {name: t.detach() for name, t in named.items() if name not in radius}
        theta = {name: named[name].detach() for name in radius}

        def value(weights: Tensors, xs: Tensor, ys: Tensor) -> Tensor:
            return scalar(self.loss(functional_call(self.model, {**fixed, **weights}, (xs,)), ys))

        def climbed(xs: Tensor, ys: Tensor) -> Tensors:
            g, loss = grad_and_value(value)(theta, xs, ys)
            squares = torch.stack([torch.linalg.vector_norm(t) for t in g.values()])
            norm = torch.linalg.vector_norm(squares)
            up = {k: theta[k] + foreach.ratio(radius[k], norm) * t for k, t in g.items()}
            g, _ = grad_and_value(value)(up, xs, ys)
            return {**g, "": loss.detach()}

        n, m = len(x), min(self.m, len(x))
        whole = n // m
        total: Tensors = {}
        stride = self.chunk or whole
        for first in range(0, whole, stride):
            rows = slice(first * m, min(first + stride, whole) * m)
            xs, ys = (t[rows].reshape(-1, m, *t.shape[1:]) for t in (x, y))
            parts = vmap(climbed)(xs, ys)
            _add(total, {k: t.sum(0) for k, t in parts.items()}, m / n)
        if whole * m < n:
            _add(total, climbed(x[whole * m :], y[whole * m :]), (n - whole * m) / n)
        return total

    def _by_loop(self, x: Tensor, y: Tensor, radius: dict[str, float]) -> Tensors:
        """Return the same as `_by_vmap`, one group after the other, through the module itself."""
        named = dict(self.model.named_parameters())
        params: list[Tensor] = [named[name] for name in radius]
        total: Tensors = {}
        with torch.no_grad():
            before = [p.clone() for p in params]
            try:
                for first in range(0, len(x), self.m):
                    xs, ys = x[first : first + self.m], y[first : first + self.m]
                    noise = Noise(p.device for p in params)
                    g = self._together(xs, ys, radius)
                    loss = g.pop("")
                    norm = foreach.norm(list(g.values()))
                    for name, t in g.items():
                        named[name].add_(t * foreach.ratio(radius[name], norm))
                    noise.replay()
                    with frozen_batchnorm(self.model):
                        g = self._together(xs, ys, radius)
                    torch._foreach_copy_(params, before)
                    _add(total, {**g, "": loss}, len(xs) / len(x))
            finally:
                torch._foreach_copy_(params, before)
        return total


def _add(total: Tensors, part: Tensors, weight: float) -> None:
    for name, t in part.items():
        total[name] = total[name].add_(t, alpha=weight) if name in total else t * weight


def _has_noise(model: nn.Module) -> bool:
    """Return whether a pass draws random numbers or writes running statistics."""
    return any(
        m.training
        and (
            (isinstance(m, _DropoutNd) and m.p > 0)
            or (isinstance(m, _NormBase) and m.track_running_stats)
        )
        for m in model.modules()
    )
