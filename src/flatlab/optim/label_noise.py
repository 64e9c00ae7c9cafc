"""Label-noise SGD: fresh noise on the labels in every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..errors import UserError, whole_number
from ._checks import not_negative
from .wrapper import Base, Stepped, WrappedOptimizer


class LabelNoiseSGD(WrappedOptimizer):
    """SGD on labels that are perturbed anew in every step (Blanc et al. 2020, arXiv:1904.09080).

        sign:      ỹ = y + noise s,  s = ±1 with equal chance
        gaussian:  ỹ = y + noise z,  z ~ N(0, 1)
        flip:      ỹ = y with probability 1 − noise, else one of the other classes, all equally
                   likely (classification; Damian et al. 2021, arXiv:2106.06530, replace labels too)
        θ ← base(θ, ∇L(θ; x, ỹ))

    The generator belongs to the caller: to resume bit by bit, save `generator.get_state()` beside
    `state_dict()` and restore both.

    Args:
        params: Parameters or groups, or a base optimizer.
        noise: Amplitude, or the probability of a flip.
        generator: Source of the noise; no other generator is touched.
        kind: "sign", "gaussian" or "flip".
        classes: Number of classes, for "flip".
        base: Class of the base optimizer; torch.optim.SGD if none is given.
        **options: Options of the base optimizer.

    >>> w = torch.tensor([1.0], requires_grad=True)
    >>> optimizer = LabelNoiseSGD([w], 0.5, torch.Generator(), lr=0.1)
    >>> def closure(labels):
    ...     loss = ((w - labels) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure, torch.tensor([1.0])).item()  # (±0.5)²
    0.25
    """

    strength: ClassVar[str] = "noise"

    def __init__(
        self,
        params: Stepped,
        noise: float,
        generator: torch.Generator,
        *,
        kind: Literal["sign", "gaussian", "flip"] = "sign",
        classes: int | None = None,
        base: Base | None = None,
        **options: Any,
    ):
        noise = not_negative("noise", noise)
        if kind not in ("sign", "gaussian", "flip"):
            raise UserError(f"unknown kind {kind!r}: allowed: flip, gaussian, sign")
        if kind == "flip" and (noise > 1 or classes is None):
            raise UserError(
                f"kind 'flip' needs classes >= 2 and a probability noise <= 1, "
                f"got classes={classes}, noise={noise:g}"
            )
        if classes is not None:
            classes = whole_number("classes", classes, least=2)
        if not isinstance(generator, torch.Generator):
            raise UserError(f"generator must be a torch.Generator, got {type(generator).__name__}")
        super().__init__(params, base, {}, options)
        self.noise, self.generator, self.kind, self.classes = noise, generator, kind, classes

    def perturb(self, labels: Tensor) -> Tensor:
        """Return fresh noisy labels, of the same shape and dtype."""
        if labels.dtype.is_floating_point == (self.kind == "flip"):
            wanted = "integer" if self.kind == "flip" else "floating-point"
            raise UserError(f"kind {self.kind!r} needs {wanted} labels, got {labels.dtype}")
        if self.kind == "flip":
            return self._flip(labels)
        drawn = torch.empty(labels.shape, dtype=labels.dtype, device=self.generator.device)
        if self.kind == "gaussian":
            drawn.normal_(generator=self.generator)
        else:
            drawn.bernoulli_(0.5, generator=self.generator).mul_(2).sub_(1)
        return labels + self.noise * drawn.to(labels.device)

    def _flip(self, labels: Tensor) -> Tensor:
        assert self.classes is not None  # checked at construction
        device = self.generator.device
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            raise UserError(
                f"labels must lie in 0..{self.classes - 1}, "
                f"got {int(labels.min())}..{int(labels.max())}"
            )
        shift = torch.empty(labels.shape, dtype=torch.int64, device=device)
        shift.random_(1, self.classes, generator=self.generator)
        where = torch.empty(labels.shape, dtype=torch.float64, device=device)
        where.uniform_(generator=self.generator)
        shift = shift * (where < self.noise)
        return ((labels + shift.to(labels.device)) % self.classes).to(labels.dtype)

    def step(  # type: ignore[override]
        self, closure: Callable[[Tensor], Any] | None = None, labels: Tensor | None = None
    ) -> Any:
        """Take one step; the closure receives noisy labels, calls backward and returns the loss."""
        if not callable(closure) or labels is None:
            raise UserError(
                "LabelNoiseSGD.step needs a closure and the labels: step(closure, labels) calls "
                "closure(noisy_labels); in a loop of your own call perturb(labels) and base.step()"
            )
        self.zero_grad()
        with torch.enable_grad():
            loss = closure(self.perturb(labels))
        self.base.step()
        return loss
