"""SAM against others' SAM, and against the compiled engine that shares no code with it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from optim_cases import batches, closure_of, furthest, mse, network, weights

from flatlab import data
from flatlab.engine.philox import key_words, permutation
from flatlab.errors import UserError
from flatlab.losses import Loss
from flatlab.models import TwoLayer, build
from flatlab.optim import ASAM, MSAM, SAM
from flatlab.randomness import key
from flatlab.training.schedule import Phase
from trainers import by_engine


@pytest.fixture(scope="module")
def theirs():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports much, not all of it quietly
        return pytest.importorskip("pytorch_optimizer")


BASES = {
    "sgd": (torch.optim.SGD, {"lr": 0.05, "weight_decay": 0.01}),
    "momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
}


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("base", BASES)
def test_pytorch_optimizer(theirs, base, adaptive):
    """Twenty steps in float64 to 1e-8: they round ‖g‖ to float32, 6e-8 of a radius of 0.1.

    Their 1e-12 in the norm is set to 0, and our eta, which they have not.
    """
    kind, options = BASES[base]
    ends = []
    for ours in (True, False):
        model = network()
        if not ours:
            optimizer = theirs.SAM(
                model.parameters(), kind, rho=0.1, adaptive=adaptive, perturb_eps=0.0, **options
            )
        elif adaptive:
            optimizer = ASAM(model.parameters(), kind, rho=0.1, eta=0.0, **options)
        else:
            optimizer = SAM(model.parameters(), kind, rho=0.1, **options)
        for x, y in batches(20):
            inner = closure_of(model, mse, x, y)

            def closure(inner=inner, optimizer=optimizer):
                optimizer.zero_grad()
                return inner()

            if not ours:
                closure()  # theirs wants the first gradient before the step
            optimizer.step(closure)
        ends.append(weights(model))
    assert furthest(*ends) < 1e-8


@pytest.mark.parametrize("adaptive", [False, True])
def test_pytorch_optimizer_where_float32_holds_the_norm(theirs, adaptive):
    """‖(3, 4)‖ = 5, ‖(12, 9)‖ = 15 and rho/‖·‖ = 1/8 have no rounding: they agree to 1e-15."""
    theta, scale = ((1.0, 3.0), (12.0, 1.0)) if adaptive else ((3.0, 1.0), (1.0, 4.0))
    rho = 15 / 8 if adaptive else 5 / 8
    ends = []
    for ours in (True, False):
        w = torch.tensor(theta, dtype=torch.float64, requires_grad=True)

        def closure(w=w):
            w.grad = None
            ((w**2 * torch.tensor(scale, dtype=torch.float64)).sum() / 2).backward()

        if not ours:
            options = {"adaptive": adaptive, "perturb_eps": 0.0}
            optimizer = theirs.SAM([w], torch.optim.SGD, rho=rho, lr=0.1, **options)
            closure()
        elif adaptive:
            optimizer = ASAM([w], rho=rho, lr=0.1, eta=0.0)
        else:
            optimizer = SAM([w], rho=rho, lr=0.1)
        optimizer.step(closure)
        ends.append([w.detach()])
    assert furthest(*ends) < 1e-15


DATA = data.xor(d=6, n=23, seed=3, n_test=10)
ARCH = TwoLayer(width=11)
SEED = 7


@pytest.mark.parametrize("batch_size", [1, 5, None])
@pytest.mark.parametrize(("algorithm", "rho"), [("sam", 0.05), ("usam", 0.02)])
def test_the_engine(algorithm, rho, batch_size):
    """The design's bounds: 1e-12 relative after the first epoch, 1e-8 after 200 steps."""
    phase = Phase(
        algorithm, lr=0.005, rho=rho, weight_decay=0.02, epochs=10**6, batch_size=batch_size
    )
    size = batch_size or DATA.n
    per_epoch = -(-DATA.n // size)
    many = -(-200 // per_epoch)
    for epochs, bound in ((1, 1e-12), (many, 1e-8)):
        params = ARCH.initial(DATA.d, seed=1)
        engine = by_engine(ARCH, params, Loss("mse"), DATA, SEED, "float64")
        engine.advance(phase, 0, epochs * engine.units_per_epoch(phase), 0)

        net = build(ARCH, params, DATA.x_train)
        optimizer = SAM(
            net.parameters(), rho=rho, normalised=algorithm == "sam", lr=0.005, weight_decay=0.02
        )
        order = np.empty(DATA.n, np.int64)
        for epoch in range(epochs):
            permutation(key_words(key(SEED, "order")), epoch, order)
            for first in range(0, DATA.n, size):
                rows = order[first : first + size]
                x, y = (torch.tensor(t[rows]) for t in (DATA.x_train, DATA.y_train))
                optimizer.step(closure_of(net, Loss("mse").torch, x, y))
        assert distance(engine.params(), net) < bound


def test_one_sam_of_one_example_is_the_engines():
    """m-SAM on batches of one example, through vmap, is the engine's batch_size = 1."""
    phase = Phase("sam", lr=0.005, rho=0.05, epochs=10, batch_size=1)
    params = ARCH.initial(DATA.d, seed=1)
    engine = by_engine(ARCH, params, Loss("mse"), DATA, SEED, "float64")
    engine.advance(phase, 0, engine.units_per_epoch(phase), 0)
    net = build(ARCH, params, DATA.x_train)
    optimizer = MSAM(net, Loss("mse").torch, lr=0.005, rho=0.05, m=1, method="vmap")
    order = np.empty(DATA.n, np.int64)
    permutation(key_words(key(SEED, "order")), 0, order)
    for row in order:
        optimizer.step(torch.tensor(DATA.x_train[[row]]), torch.tensor(DATA.y_train[[row]]))
    assert distance(engine.params(), net) < 1e-12


def distance(params, net):
    """Largest difference over the parameters, relative to each array's size."""
    return max(
        np.abs(params[name] - p.detach().numpy()).max() / np.abs(params[name]).max()
        for name, p in net.named_parameters()
    )


@pytest.mark.parametrize("by_position", [False, True])
def test_a_loop_of_other_libraries_takes_the_same_steps(by_position):
    """The README of davda54/sam: two backward passes, first_step and second_step in between."""
    ends = []
    for ours in (True, False):
        model = network()
        optimizer = SAM(model.parameters(), base_optimizer=torch.optim.SGD, rho=0.1, lr=0.05)
        given = ((True,), {}) if by_position else ((), {"zero_grad": True})
        for x, y in batches(5):
            if ours:
                optimizer.step(closure_of(model, mse, x, y))
                continue
            mse(model(x), y).backward()
            optimizer.first_step(*given[0], **given[1])
            mse(model(x), y).backward()
            optimizer.second_step(*given[0], **given[1])
            assert all(p.grad is None for p in model.parameters())
        ends.append(weights(model))
    assert furthest(*ends) == 0


def test_calls_of_other_libraries_that_differ_name_the_equivalent():
    model = network()
    with pytest.raises(UserError, match=r"ASAM\(params, base, rho=\.\.\., eta=0\)"):
        SAM(model.parameters(), torch.optim.SGD, rho=0.1, adaptive=True, lr=0.1)
    SAM(model.parameters(), torch.optim.SGD, rho=0.1, adaptive=False, lr=0.1)
    with pytest.raises(UserError, match="two names of one option"):
        SAM(model.parameters(), torch.optim.SGD, base_optimizer=torch.optim.SGD, lr=0.1)
    scaler, optimizer = torch.amp.GradScaler("cpu"), SAM(model.parameters(), lr=0.1)
    ((x, y),) = batches(1)
    scaler.scale(mse(model(x), y)).backward()
    with pytest.raises(UserError, match=r"optimizer\.step\(closure, scaler=scaler\)"):
        scaler.step(optimizer)
