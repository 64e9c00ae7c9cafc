"""The two-pass SAM loop that a PyTorch user writes: modules, autograd, an optimizer.

It is as fast as plain code can be: no data loader, no host synchronisation in the loop, gradients
set to None, SAM in the two-call form of the widely used implementation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from flatlab.models import Architecture, Deep, Params

from .cases import Case, sample_order


class SAM(torch.optim.Optimizer):
    """SAM in two calls: `first_step` climbs to θ + rho g/‖g‖, `second_step` descends from θ."""

    def __init__(self, params: Any, base: type[torch.optim.Optimizer], rho: float, **options: Any):
        super().__init__(params, {"rho": rho, **options})
        self.base = base(self.param_groups, **options)

    @torch.no_grad()
    def first_step(self) -> None:
        """Remember θ and climb; gradients are cleared."""
        norm = self._gradient_norm()
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad * scale)
        self.zero_grad(set_to_none=True)

    @torch.no_grad()
    def second_step(self) -> None:
        """Return to θ and take the base step; gradients are cleared."""
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad(set_to_none=True)

    def _gradient_norm(self) -> Tensor:
        norms = [p.grad.norm() for group in self.param_groups for p in group["params"]]
        return torch.stack(norms).norm()


class SimBN(nn.Module):
    """u_j → γ_j u_j / rms_j, with rms_j over the whole training set and gradients through it."""

    def __init__(self, hidden: nn.Module, x_train: Tensor, width: int):
        super().__init__()
        self.hidden, self.x_train = hidden, x_train
        self.gamma = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised hidden layer."""
        rms = self.hidden(self.x_train).square().mean(0).sqrt()
        return self.gamma * self.hidden(x) / rms


class SimLN(nn.Module):
    """u → u / max(‖u‖, ε)."""

    def __init__(self, epsilon: float):
        super().__init__()
        self.epsilon = epsilon

    def forward(self, u: Tensor) -> Tensor:
        """Return the normalised hidden layer."""
        return u / u.norm(dim=-1, keepdim=True).clamp(min=self.epsilon)


def network(arch: Architecture, x_train: Tensor) -> tuple[nn.Module, dict[str, nn.Parameter]]:
    """Return the network with arbitrary weights, and its weights by the engine's names."""
    depth, bias = (arch.depth, arch.bias_first) if isinstance(arch, Deep) else (2, arch.bias)
    norm = None if isinstance(arch, Deep) else arch.norm
    first = nn.Linear(x_train.shape[1], arch.width, bias=bias)
    layers: list[nn.Module] = [first, nn.ReLU()]
    weights = {"W1": first.weight} | ({"b1": first.bias} if bias else {})
    if norm == "batch":
        layers = [SimBN(nn.Sequential(*layers), x_train, arch.width)]
        weights["gamma"] = layers[0].gamma
    elif norm == "layer":
        layers.append(SimLN(arch.ln_epsilon))
    for layer in range(2, depth + 1):
        linear = nn.Linear(arch.width, arch.width if layer < depth else 1, bias=False)
        layers += [linear, nn.ReLU()] if layer < depth else [linear]
        weights[f"W{layer}"] = linear.weight
    return nn.Sequential(*layers), weights


class Eager:
    """The eager loop as a contender."""

    def __init__(self, case: Case, dtype: str = "float32"):
        self.case, self.steps_per_epoch = case, case.steps_per_epoch
        self.dtype = getattr(torch, dtype)
        self.x = torch.tensor(case.data.x_train, dtype=self.dtype)
        self.y = torch.tensor(case.data.y_train, dtype=self.dtype)[:, None]
        self.net, self.weights = network(case.arch, self.x)
        self.net.to(self.dtype)
        self.start = case.start()
        self.order: list[int] = []
        self.reset()

    def reset(self) -> None:
        """Go back to the initial weights."""
        with torch.no_grad():
            for name, p in self.weights.items():
                p.copy_(torch.as_tensor(self.start[name]).reshape(p.shape))

    def run(self, epochs: int) -> None:
        """Train from the current weights."""
        if self.case.phase.algorithm == "sam":
            self._one_sam(sample_order(len(self.y), epochs))
        else:
            self._gradient_descent(epochs)

    def _one_sam(self, order: list[int]) -> None:
        phase, loss = self.case.phase, nn.functional.mse_loss
        optimizer = SAM(self.net.parameters(), torch.optim.SGD, rho=phase.rho, lr=phase.lr)
        for i in order:
            x, y = self.x[i : i + 1], self.y[i : i + 1]
            loss(self.net(x), y).backward()
            optimizer.first_step()
            loss(self.net(x), y).backward()
            optimizer.second_step()

    def _gradient_descent(self, steps: int) -> None:
        optimizer = torch.optim.SGD(self.net.parameters(), lr=self.case.phase.lr)
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.mse_loss(self.net(self.x), self.y).backward()
            optimizer.step()

    def check(self) -> None:
        """Raise if the weights are not finite."""
        if not all(torch.isfinite(p).all() for p in self.weights.values()):
            raise FloatingPointError(f"{self.case.what}: the eager loop diverged")

    def params(self) -> Params:
        """Return a copy of the weights by name."""
        return {
            name: self.weights[name].detach().numpy().reshape(value.shape).copy()
            for name, value in self.start.items()
        }
