"""The torch trainer: the same updates through autograd. Slow, general, and the meaning.

It has the interface of `engine.CompiledTrainer`, visits examples in the same order and draws the
same noise, so the two can be compared step by step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..data import Dataset
from ..engine.compiled import USES
from ..engine.philox import OTHERS, key_words, normals, signs, visits, with_order
from ..losses import Loss
from ..models import Architecture, Params, build
from ..optim import SAM
from ..randomness import key
from .schedule import Phase


class TorchTrainer:
    """Holds a torch module and advances it by steps; a unit is one step."""

    def __init__(
        self,
        arch: Architecture,
        params: Params,
        loss: Loss,
        data: Dataset,
        seed: int,
        dtype: str,
    ):
        self.arch, self.loss, self.dtype = arch, loss, np.dtype(dtype)
        self.x_train = data.x_train
        self.x = torch.tensor(data.x_train.astype(dtype))
        self.y = torch.tensor(data.y_train.astype(dtype))
        self.keys = np.stack([key_words(key(seed, use)) for use in USES])
        self.load(params)

    def load(self, params: Params, velocity: Params | None = None) -> None:
        """Set the weights, and the velocity of a phase with momentum."""
        cast: Params = {name: value.astype(self.dtype) for name, value in params.items()}
        self.net: Any = build(self.arch, cast, self.x_train)
        self.buffers = {k: torch.tensor(v) for k, v in (velocity or {}).items()}

    def params(self) -> Params:
        """Return a copy of the weights by name."""
        return {name: p.detach().numpy().copy() for name, p in self.net.named_parameters()}

    def velocity(self) -> Params:
        """Return a copy of the velocity by name, nothing without momentum."""
        return {name: value.numpy().copy() for name, value in self.buffers.items()}

    def units_per_epoch(self, phase: Phase) -> int:
        """Return the number of steps in one epoch of a phase."""
        return -(-len(self.y) // (phase.batch_size or len(self.y)))

    def advance(self, phase: Phase, first: int, last: int, epoch0: int) -> int:
        """Run steps first..last−1 of a phase; return the step that diverged, or −1."""
        n = len(self.y)
        size, steps = phase.batch_size or n, self.units_per_epoch(phase)
        order, noise, shifts = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(self.x.shape)
        others = np.empty(n, np.int64)
        if first == 0:
            self.buffers = {}
        optimizer = self._optimizer(phase)
        keys, drawn = with_order(self.keys, phase.order), -1
        for step in range(first, last):
            epoch = step // steps
            if epoch != drawn:
                visits(keys, epoch0 + epoch, order)
                visits(keys[OTHERS:], epoch0 + epoch, others)
                signs(keys[1], epoch0 + epoch, noise)
                if phase.input_noise is not None:
                    normals(keys[2], epoch0 + epoch, shifts)
                drawn = epoch
            part = slice((step - epoch * steps) * size, (step - epoch * steps + 1) * size)
            rows = torch.from_numpy(order[part])
            y = self.y[rows] + phase.noise * torch.from_numpy(noise[part].astype(self.dtype))
            x = self.x[rows]
            if phase.input_noise is not None:
                x = x + phase.input_noise * torch.from_numpy(shifts[part].astype(self.dtype))
            batches = [(x, y)]
            if phase.second_batch is not None:
                rows = torch.from_numpy(others[part])
                batches.append((self.x[rows], self.y[rows]))
            if not self._step(phase, optimizer, batches):
                return step
            if phase.max_first_layer_norm is not None:
                self._project(phase.max_first_layer_norm, phase.norm_rule)
        self._keep_velocity(optimizer)
        return -1

    def _optimizer(self, phase: Phase) -> torch.optim.Optimizer:
        groups: Any = self.net.parameters()
        if phase.bias_apart:
            lr, weight_decay = phase.of_bias
            rest = [p for name, p in self.net.named_parameters() if name != "b1"]
            bias = [self.net.get_parameter("b1")]
            groups = [{"params": rest}, {"params": bias, "lr": lr, "weight_decay": weight_decay}]
        sgd = torch.optim.SGD(
            groups, lr=phase.lr, weight_decay=phase.weight_decay, momentum=phase.momentum or 0.0
        )
        for name, value in self.buffers.items():
            sgd.state[self.net.get_parameter(name)]["momentum_buffer"] = value.clone()
        if phase.algorithm in ("sam", "usam"):
            return SAM(sgd, rho=phase.rho, normalised=phase.algorithm == "sam")
        return sgd

    def _keep_velocity(self, optimizer: torch.optim.Optimizer) -> None:
        state = getattr(optimizer, "base", optimizer).state
        self.buffers = {
            name: buffer.clone()
            for name, p in self.net.named_parameters()
            if (buffer := state[p].get("momentum_buffer")) is not None
        }

    def _step(
        self,
        phase: Phase,
        optimizer: torch.optim.Optimizer,
        batches: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> bool:
        """Take one step; return whether every loss on the way was finite.

        The last of `batches` serves every gradient after its own. A parameter without a gradient
        takes no part in an ascent or a step.
        """
        losses: list[torch.Tensor] = []
        self.net.constant_statistics = phase.statistics == "constant"

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            x, y = batches[min(len(losses), len(batches) - 1)]
            losses.append(self.loss.torch(self.net(x), y))
            losses[-1].backward()  # type: ignore[no-untyped-call]
            if phase.gamma == "fixed" or (phase.gamma == "unperturbed" and len(losses) == 1):
                self.net.get_parameter("gamma").grad = None
            return losses[-1]

        optimizer.step(closure)  # type: ignore[arg-type]
        return all(bool(torch.isfinite(value)) for value in losses)

    @torch.no_grad()
    def _project(self, limit: float, rule: str | None) -> None:
        first = [p for name, p in self.net.named_parameters() if name in ("W1", "b1")]
        for group in [[p] for p in first] if rule == "each" else [first]:
            norm = float(torch.linalg.vector_norm(torch.stack([p.norm() for p in group])))
            if norm > limit or (rule == "held" and norm > 0):
                for p in group:
                    p.mul_(limit / norm)
