"""Small problems of every kind a measure must be right on, and their dense oracle in float64.

A case is (model, loss, data, options of `Problem`). Everything is drawn from a seed; nothing is
larger than a few hundred parameters, so that whole matrices can be formed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, jacrev
from torch.utils.data import DataLoader, TensorDataset

import flatlab as fl

torch.set_num_threads(1)  # threads cost more than they give on problems of a hundred parameters


def _seeded(make):
    def made():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            return make()

    return made


def _x(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def _classes(n, c):
    return torch.randint(0, c, (n,))


def _mlp(activation, bias=True, inputs=4, width=6, outputs=3):
    return nn.Sequential(
        nn.Linear(inputs, width, bias=bias), activation(),
        nn.Linear(width, width, bias=bias), activation(),
        nn.Linear(width, outputs, bias=bias),
    ).double()  # fmt: skip


def _convolution(norm=False):
    layers = [nn.Conv2d(2, 3, 3, padding=1)]
    layers += [nn.BatchNorm2d(3)] if norm else []
    layers += [nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3)).double()
    if norm:  # statistics that are not those of the data, and an affine part that is not trivial
        with torch.no_grad():
            model[1].running_mean.copy_(torch.randn(3))
            model[1].running_var.copy_(0.5 + torch.rand(3))
            model[1].weight.copy_(0.5 + torch.rand(3))
            model[1].bias.copy_(torch.randn(3))
    return model


class Block(nn.Module):
    """LayerNorm, GELU and a residual connection."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(5), nn.Linear(5, 7), nn.Linear(7, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(x + self.down(nn.functional.gelu(self.up(self.norm(x)))))


class Attention(nn.Module):
    """One head over a few tokens, through the fused call that picks its own kernel."""

    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(4, 12), nn.Linear(4, 3)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        mixed = nn.functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])
        return self.head(mixed[:, 0].mean(1))


class Words(nn.Module):
    """An embedding, averaged, and a classifier."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.table(x).mean(1))


class Tied(nn.Module):
    """One matrix used twice: not linear in it."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(5, 5), nn.Linear(5, 3)
        self.second = nn.Linear(5, 5)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(torch.relu(self.second(torch.relu(self.first(x)))))


def _frozen():
    model = _mlp(nn.ReLU)
    model[0].requires_grad_(False)
    return model


def _ragged(x, y):
    return DataLoader(TensorDataset(x, y), batch_size=8)


def _flatlab(arch):
    data = fl.data.xor(d=5, n=14, seed=1, n_test=4)
    params = {k: v.astype("float64") for k, v in arch.initial(data.d, 0).items()}
    return fl.models.build(arch, params, data.x_train), "mse", data


CE, MSE = nn.CrossEntropyLoss, nn.MSELoss


@dataclass(frozen=True)
class Case:
    make: Any
    options: dict[str, Any] = field(default_factory=dict)
    linear: bool = False  # linear in each parameter alone: the exact trace applies


CASES = {
    "linear": Case(_seeded(lambda: (nn.Linear(5, 1).double(), MSE(), (_x(20, 5), _x(20, 1)))),
                   linear=True),
    "tanh": Case(_seeded(lambda: (_mlp(nn.Tanh), CE(), (_x(21, 4), _classes(21, 3))))),
    "relu": Case(_seeded(lambda: (_mlp(nn.ReLU), CE(), (_x(21, 4), _classes(21, 3)))),
                 linear=True),
    "relu without bias": Case(
        _seeded(lambda: (_mlp(nn.ReLU, bias=False), CE(), (_x(21, 4), _classes(21, 3)))),
        linear=True),
    "convolution": Case(
        _seeded(lambda: (_convolution(), CE(), (_x(15, 2, 6, 6), _classes(15, 3)))),
        {"batch_size": 6}, linear=True),
    "batchnorm, eval": Case(
        _seeded(lambda: (_convolution(True), CE(), (_x(15, 2, 6, 6), _classes(15, 3)))),
        linear=True),
    "batchnorm, train": Case(
        _seeded(lambda: (_convolution(True), CE(), (_x(15, 2, 6, 6), _classes(15, 3)))),
        {"mode": "train", "batch_size": 6}),
    "batchnorm, recomputed": Case(
        _seeded(lambda: (_convolution(True), CE(), (_x(15, 2, 6, 6), _classes(15, 3)))),
        {"mode": "recomputed", "batch_size": 6}, linear=True),
    "layernorm and gelu": Case(
        _seeded(lambda: (Block().double(), CE(), (_x(16, 5), _classes(16, 3))))),
    "attention": Case(
        _seeded(lambda: (Attention().double(), CE(), (_x(12, 3, 4), _classes(12, 3))))),
    "embedding": Case(
        _seeded(lambda: (Words().double(), CE(), (torch.randint(0, 9, (18, 4)), _classes(18, 3)))),
        linear=True),
    "multi-output mse": Case(
        _seeded(lambda: (_mlp(nn.Tanh, outputs=2), MSE(), (_x(16, 4), _x(16, 2))))),
    "tied": Case(_seeded(lambda: (Tied().double(), CE(), (_x(16, 5), _classes(16, 3))))),
    "frozen": Case(_seeded(lambda: (_frozen(), CE(), (_x(21, 4), _classes(21, 3)))), linear=True),
    "raised to float64": Case(
        _seeded(lambda: (_mlp(nn.ReLU).float(), CE(), (_x(21, 4).float(), _classes(21, 3)))),
        {"dtype": "float64"}, linear=True),
    "ragged loader": Case(
        _seeded(lambda: (_mlp(nn.Tanh), CE(), _ragged(_x(21, 4), _classes(21, 3))))),
    "two-layer": Case(_seeded(lambda: _flatlab(fl.models.TwoLayer(width=6))), linear=True),
    "simplified batchnorm": Case(
        _seeded(lambda: _flatlab(fl.models.TwoLayer(width=6, norm="batch")))),
    "simplified layernorm": Case(
        _seeded(lambda: _flatlab(fl.models.TwoLayer(width=6, norm="layer")))),
    "part of the parameters": Case(
        _seeded(lambda: (_mlp(nn.Tanh), CE(), (_x(21, 4), _classes(21, 3)))),
        {"params": ["0", "4.bias"]}),
}  # fmt: skip


class Dense:
    """The matrices of a case, formed whole by autograd from the definition."""

    def __init__(self, name: str):
        case = CASES[name]
        model, loss, data = case.make()
        self.model, self.options = copy.deepcopy(model).double(), case.options
        if isinstance(data, fl.data.Dataset):
            data = (torch.tensor(data.x_train), torch.tensor(data.y_train))
        if isinstance(data, tuple):
            size = case.options.get("batch_size") or len(data[0])
            data = list(zip(data[0].split(size), data[1].split(size), strict=True))
        self.batches = [(x.double() if x.is_floating_point() else x, y) for x, y in data]
        self.n = sum(len(x) for x, _ in self.batches)
        self.loss = fl.Loss("mse").torch if loss == "mse" else loss
        self._set_mode(case.options.get("mode", "eval"))
        wanted = case.options.get("params")
        self.params = {
            name: p.detach()
            for name, p in self.model.named_parameters()
            if p.requires_grad
            and (wanted is None or name in wanted or name.rpartition(".")[0] in wanted)
        }
        for p in self.model.parameters():
            p.requires_grad_(False)
        self.theta = torch.cat([p.flatten() for p in self.params.values()])

    def _set_mode(self, mode):
        self.model.train(mode == "train")
        for module in self.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                if mode == "train":
                    module.track_running_stats = False
                    module.running_mean = module.running_var = None
                if mode == "recomputed":  # the case has one, right after the first convolution
                    whole = self.model[0](torch.cat([x for x, _ in self.batches])).detach()
                    module.running_mean = whole.mean((0, 2, 3))
                    module.running_var = whole.var((0, 2, 3), unbiased=True)

    def outputs(self, theta, x):
        parts = theta.split([p.numel() for p in self.params.values()])
        given = {
            n: part.view_as(p) for (n, p), part in zip(self.params.items(), parts, strict=True)
        }
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return functional_call(self.model, given, (x,))

    def value(self, theta):
        return sum(self.loss(self.outputs(theta, x), y) * len(x) for x, y in self.batches) / self.n

    def matrix(self, kind):
        if kind == "hessian":
            # Not torch.func: its second derivative of BatchNorm in train mode is not symmetric and
            # differs from finite differences.
            return torch.autograd.functional.hessian(self.value, self.theta)
        total = torch.zeros(len(self.theta), len(self.theta), dtype=torch.float64)
        for x, y in self.batches:
            f = self.outputs(self.theta, x).detach()
            J = jacrev(lambda theta, x=x: self.outputs(theta, x).flatten())(self.theta)
            if kind == "gram":
                total += J.T @ J / self.n
                continue
            mean = lambda out, f=f, y=y: self.loss(out.view_as(f), y)  # noqa: E731
            if kind == "ggn":
                B = jacrev(jacrev(mean))(f.flatten())
                total += J.T @ B @ J * len(x) / self.n
            else:
                u = (jacrev(mean)(f.flatten()) * len(x)).view(len(x), -1)
                g = torch.einsum("ic,icp->ip", u, J.view(len(x), u.shape[1], -1))
                total += g.T @ g / self.n
        return total
