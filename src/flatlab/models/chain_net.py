"""The scalar networks in torch: the meaning of `TwoLayer` and `Deep`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .chains import NORM_EPSILON, Chain
from .contract import Params

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    # torch's own softplus turns linear above 20; this one does not.
    "softplus": lambda h: torch.logaddexp(h, torch.zeros_like(h)),
    "tanh": torch.tanh,
    "identity": lambda h: h,
}


class ChainNet(nn.Module):
    """f(x) = W_D · N(σ(W_{D−1} ⋯ σ(W1 x + b1))), with a bias in the first layer at most.

    N is the identity or, in two layers, simplified or standard Batch- or LayerNorm.

    Simplified BatchNorm divides neuron j by its root mean square over the whole training set, in
    training and at test time alike, and gradients flow through it; so the network carries the
    training inputs as the buffer `x_train`. A neuron that is zero on all of them outputs zero.
    Standard BatchNorm takes its mean and variance in the same way: on the training set it is
    `torch.nn.BatchNorm1d` in training mode with the whole set as its batch, elsewhere that module
    in evaluation mode with those statistics (the variance with divisor n). `constant_statistics`
    keeps gradients from flowing through the statistics of either.
    """

    # Plain attributes: `get_parameter` refuses the tensors that torch.func puts in their place.
    W1: Tensor
    b1: Tensor
    gamma: Tensor
    beta: Tensor
    x_train: Tensor

    def __init__(self, arch: Chain, params: Params, x_train: Tensor | None):
        super().__init__()
        self.arch = arch
        self.constant_statistics = False
        for name, value in params.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(value)))
        self.register_buffer("x_train", x_train, persistent=False)  # data, not state

    def hidden(self, x: Tensor) -> Tensor:
        """Return σ(W1 x + b1), of shape (examples, width)."""
        bias = self.b1 if self.arch.bias else None
        h = nn.functional.linear(x, self.W1, bias)
        return _ACTIVATIONS[self.arch.activation](h)

    def _on_training_set(self) -> Tensor:
        u = self.hidden(self.x_train)
        return u.detach() if self.constant_statistics else u

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs, of shape (examples,)."""
        u = self.hidden(x)
        for number in range(2, self.arch.depth):
            u = torch.relu(nn.functional.linear(u, getattr(self, f"W{number}")))
        if self.arch.norm == "layer":
            size = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
            u = u / size.clamp(min=self.arch.ln_epsilon)
        elif self.arch.norm == "batch":
            mean_square = (self._on_training_set() ** 2).mean(0)
            alive = mean_square > 0
            rms = torch.where(alive, mean_square, torch.ones_like(mean_square)).sqrt()
            u = torch.where(alive, self.gamma * u / rms, torch.zeros_like(u))
        elif self.arch.norm is not None:
            layer = self.arch.norm == "standard_layer"
            of = u if layer else self._on_training_set()
            variance, mean = torch.var_mean(of, -1 if layer else 0, correction=0, keepdim=True)
            u = self.gamma * (u - mean) / torch.sqrt(variance + NORM_EPSILON) + self.beta
        last: Tensor = getattr(self, self.arch.last_layer)
        return u @ last
