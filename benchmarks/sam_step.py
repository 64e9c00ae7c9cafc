"""A SAM step compared with a plain SGD step and with pytorch_optimizer's SAM, on one batch."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from flatlab.optim import SAM

from . import timing, vgg
from .rows import Row, Target, Tell

OVER_SGD = Target("ratio", "<=", 2.1)
# "No slower": two loops of the same arithmetic differ by up to 2 % from run to run.
OVER_THEIRS = Target("ratio", "<=", 1.02)
LR, RHO = 0.01, 0.05
AGREEMENT = 1e-6
ROUNDS = 25

LOSS = nn.CrossEntropyLoss()


def installed() -> bool:
    """Return whether pytorch_optimizer can be imported."""
    return importlib.util.find_spec("pytorch_optimizer") is not None


class Loop:
    """Steps on one batch, as a contender; an epoch is two gradients of the loss.

    Slices of equal work have equal noise. With slices of equal steps SGD, whose step is half as
    long, would look faster, because the fastest of many short slices counts.
    """

    def __init__(self, kind: str, batch: int, dtype: torch.dtype = torch.float32):
        self.steps_per_epoch = 2 if kind == "sgd" else 1
        x, self.y, self.images = vgg.images(batch)
        self.x, self.kind = x.to(dtype), kind
        self.net = vgg.network(dtype=dtype)
        self.start = {name: t.clone() for name, t in self.net.state_dict().items()}
        self.optimizer = self._optimizer()
        self.step: Callable[[], Any] = {"sgd": self._sgd, "sam": self._sam, "theirs": self._theirs}[
            kind
        ]

    def _optimizer(self) -> Any:
        params = self.net.parameters()
        if self.kind == "sgd":
            return torch.optim.SGD(params, lr=LR)
        if self.kind == "sam":
            return SAM(params, rho=RHO, lr=LR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of its many imports warn
            import pytorch_optimizer
        return pytorch_optimizer.SAM(params, torch.optim.SGD, rho=RHO, lr=LR)

    def _closure(self) -> torch.Tensor:
        loss: torch.Tensor = LOSS(self.net(self.x), self.y)
        loss.backward()
        return loss

    def _sgd(self) -> None:
        self.optimizer.zero_grad()
        self._closure()
        self.optimizer.step()

    def _sam(self) -> None:
        self.optimizer.step(self._closure)

    def _theirs(self) -> None:
        self.optimizer.zero_grad()
        self._closure()  # it needs the first gradient before the step
        self.optimizer.step(self._closure)

    def reset(self) -> None:
        """Go back to the initial weights."""
        self.net.load_state_dict(self.start)
        self.net.zero_grad()

    def run(self, epochs: int) -> None:
        """Take the steps of this number of epochs."""
        for _ in range(epochs * self.steps_per_epoch):
            self.step()

    def check(self) -> None:
        """Raise if the weights are not finite."""
        if not all(bool(p.isfinite().all()) for p in self.net.parameters()):
            raise FloatingPointError(f"sam_step: the loop {self.kind!r} diverged")


def disagreement(one: Loop, two: Loop, steps: int = 3) -> float:
    """Return the largest difference of the weights after a few steps."""
    for each in (one, two):
        each.reset()
        each.run(steps)
        each.check()
    pairs = zip(one.net.parameters(), two.net.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def require_agreement(batch: int) -> None:
    """Raise unless both libraries take the same steps in float64.

    pytorch_optimizer rounds the norm to float32 and adds 1e-12 to it, so they differ by about 1e-8
    of the weights' changes.
    """
    error = disagreement(*(Loop(kind, batch, torch.float64) for kind in ("sam", "theirs")))
    if not error <= AGREEMENT:
        raise RuntimeError(
            f"flatlab's SAM and pytorch_optimizer's differ by {error:.1e} after three steps in "
            f"float64 (at most {AGREEMENT:g} is allowed), so comparing their speed means nothing"
        )


def benchmark(tell: Tell, batch: int = 128, rounds: int = ROUNDS) -> list[Row]:
    """Compare the steps on one batch."""
    kinds = ["sgd", "sam", *(["theirs"] if installed() else [])]
    if installed():
        tell("sam_step: checking against pytorch_optimizer")
        require_agreement(min(batch, 16))
    tell("sam_step: timing")
    loops = {kind: Loop(kind, batch) for kind in kinds}
    best = timing.microseconds_a_step(loops, rounds)
    ms = {kind: value / 1e3 for kind, value in best.items()}
    images = loops["sgd"].images
    rows = [
        Row("sam_step", f"SGD step, VGG11/4, batch of {batch} {images}", ms["sgd"], "ms"),
        Row("sam_step", "flatlab's SAM step; ratio: over SGD's", ms["sam"], "ms",
            ms["sam"] / ms["sgd"], OVER_SGD),
    ]  # fmt: skip
    if not installed():
        return [*rows, Row("sam_step", "skipped: pytorch_optimizer is not installed")]
    what = "pytorch_optimizer's SAM step; ratio: flatlab's over it, 2 % of noise allowed"
    return [*rows, Row("sam_step", what, ms["theirs"], "ms", ms["sam"] / ms["theirs"], OVER_THEIRS)]
