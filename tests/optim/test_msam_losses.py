"""m-SAM on models that vmap refuses, and on losses that are no mean over examples."""

from __future__ import annotations

import pytest
import torch
from optim_cases import batches, generator, mse, network, same, weights
from torch import nn
from torch.nn import functional

from flatlab.errors import UserError
from flatlab.optim import MSAM


class Dropping(nn.Module):
    """Dropout as a function, which no layer tells of."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(functional.dropout(x, 0.5, self.training))


class Attending(nn.Module):
    """Attention with a dropout of its own."""

    def __init__(self):
        super().__init__()
        self.heads = nn.MultiheadAttention(1, 1, dropout=0.5, batch_first=True)
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        tokens = x[:, :, None]
        return self.layer(self.heads(tokens, tokens, tokens)[0][:, :, 0])


class Recurrent(nn.Module):
    """A layer that vmap does not know, without noise."""

    def __init__(self):
        super().__init__()
        self.cells = nn.GRU(1, 2, batch_first=True)

    def forward(self, x):
        return self.cells(x[:, :, None])[0][:, -1]


def made(kind):
    model = kind().double()
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.copy_(torch.randn(p.shape, generator=generator(k)))
    return model


@pytest.mark.parametrize("kind", [Dropping, Attending, Recurrent])
def test_auto_takes_the_loop_where_vmap_refuses(kind):
    """Weights, losses and the random numbers drawn, bit by bit."""
    ends = []
    for method in ("auto", "loop"):
        model = made(kind)
        optimizer = MSAM(model, mse, lr=0.1, rho=0.3, m=4, method=method)
        with torch.random.fork_rng():
            torch.manual_seed(3)
            losses = [optimizer.step(x, y) for x, y in batches(3)]
            ends.append([*weights(model), *losses, torch.rand(3)])
    assert same(*ends)
    assert not same(weights(model), weights(made(kind)))


def test_vmap_is_tried_once(monkeypatch):
    model, tries = made(Dropping), []
    optimizer = MSAM(model, mse, lr=0.1, rho=0.3)
    by_vmap = optimizer._by_vmap
    monkeypatch.setattr(optimizer, "_by_vmap", lambda *a: tries.append(1) or by_vmap(*a))
    with torch.random.fork_rng():
        for x, y in batches(3):
            optimizer.step(x, y)
    assert tries == [1]


def test_vmap_that_was_asked_for_says_what_to_do():
    model = made(Dropping)
    before = weights(model)
    optimizer = MSAM(model, mse, lr=0.1, rho=0.3, method="vmap")
    with pytest.raises(UserError, match=r"draws random numbers, which method 'vmap' cannot: choo"):
        optimizer.step(*batches(1)[0])
    assert same(weights(model), before)
    model.eval()
    optimizer.step(*batches(1)[0])


def test_an_error_of_the_model_is_its_own():
    """Not one of vmap: raised by the loop again, and the next good batch goes by vmap still."""
    model = network()
    optimizer = MSAM(model, mse, lr=0.1, rho=0.3)
    x, y = batches(1)[0]
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        optimizer.step(x[:, :2], y)
    optimizer.step(x, y)
    assert not optimizer._unmapped


WEIGHT = torch.tensor([1.0, 10.0], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 0, 0, 1, 1])
BAD = {
    "class weights": nn.CrossEntropyLoss(weight=WEIGHT),
    "an ignored class": nn.CrossEntropyLoss(ignore_index=1),
    "a sum": nn.CrossEntropyLoss(reduction="sum"),
    "a root": lambda f, y: functional.cross_entropy(f, y).sqrt(),
}


@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("loss", BAD)
def test_a_loss_that_is_no_mean_is_refused(loss, method, m):
    model, (x, _) = network(), batches(1)[0]
    before = weights(model)
    optimizer = MSAM(model, BAD[loss], lr=0.1, rho=0.3, m=m, method=method)
    for _ in range(2):
        with pytest.raises(UserError, match=r"loss must be the mean over its examples, got .*: we"):
            optimizer.step(x, LABELS)
    assert same(weights(model), before)
    assert all(p.grad is None for p in model.parameters())


def test_the_weighted_mean_that_the_message_names():
    """Each example climbs alone, and the weights act: at rho → 0 it is the batch's gradient."""

    def loss(f, y):
        return (WEIGHT[y] * functional.cross_entropy(f, y, reduction="none")).mean()

    model, (x, _) = network(), batches(1)[0]
    MSAM(model, loss, lr=0.1, rho=1e-9).gradient(x, LABELS)
    expected = torch.autograd.grad(loss(model(x), LABELS), list(model.parameters()))
    for p, g in zip(model.parameters(), expected, strict=True):
        # A climb of 1e-9 turns the gradient by that much times a curvature of order ten.
        assert torch.allclose(p.grad, g, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    "options", [{"m": 6}, {"m": 100}, {"rho": 0.0}], ids=["one group", "m > n", "rho = 0"]
)
def test_a_batch_that_is_not_cut_takes_any_loss(options):
    model, (x, _) = network(), batches(1)[0]
    before = [p.detach().clone() for p in model.parameters()]
    MSAM(model, BAD["class weights"], lr=0.1, **{"rho": 0.3, **options}).step(x, LABELS)
    moved = zip(before, model.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in moved)


GOOD = {
    "mse of many outputs": mse,
    "a penalty": lambda f, y: mse(f, y) + 3.0,
    "a negative one": lambda f, y: -mse(f, y),
    "near zero": lambda f, y: 1e-30 * mse(f, y),
    "signs that cancel": lambda f, y: (f - y).mean(),
    "one with noise": lambda f, y: mse(f, y + 0.1 * torch.randn_like(y)),
    "one that is not finite": lambda f, y: mse(f, y) * float("inf"),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("loss", GOOD)
def test_a_mean_is_taken(loss, dtype):
    model = network(dtype=dtype)
    optimizer = MSAM(model, GOOD[loss], lr=0.0, rho=0.3, method="loop")
    with torch.random.fork_rng():
        optimizer.step(*batches(1, n=50, dtype=dtype)[0])
    assert all(p.grad is not None for p in model.parameters())  # the base had its gradients


def test_batchnorm_is_no_reason_to_refuse():
    """Its groups have other outputs than the batch; the loss is compared on the same ones."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    optimizer = MSAM(model, mse, lr=0.1, rho=0.3, m=3)
    x, y = batches(1, dtype=torch.float32)[0]
    with torch.random.fork_rng():
        optimizer.step(x, y)
    assert int(model[1].num_batches_tracked) == 2  # once a group, and not by the comparison


def test_the_comparison_is_made_once_and_leaves_no_trace():
    """The second step calls the model twice a group; the random numbers are those of no check."""
    calls, ends = [], []
    for checked in (False, True):
        model = made(Dropping)
        model.register_forward_hook(lambda *a: calls.append(1))
        optimizer = MSAM(model, mse, lr=0.1, rho=0.3, m=3, method="loop")
        optimizer._checked = checked
        with torch.random.fork_rng():
            torch.manual_seed(1)
            for x, y in batches(2):
                calls.clear()
                optimizer.step(x, y)
            ends.append([*weights(model), torch.rand(2)])
        assert len(calls) == 4
    assert same(*ends)
