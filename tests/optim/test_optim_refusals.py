"""Unsupported input is refused with a one-line message, as early as possible."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from optim_cases import (
    ASCENTS,
    NAMES,
    batches,
    closure_of,
    generator,
    make,
    mse,
    network,
    same,
    take_step,
    weights,
)

from flatlab.errors import UserError
from flatlab.optim import GSAM, MSAM, OPTIMIZERS, SAM, FriendlySAM, LabelNoiseSGD, LookSAM

STRENGTHS = [name for name in NAMES if OPTIMIZERS[name].strength == "rho"]


@pytest.mark.parametrize("name", NAMES)
def test_a_base_that_needs_a_closure_is_refused_when_it_is_given(name):
    kind = OPTIMIZERS[name].__name__
    message = f"LBFGS cannot be the base of {kind}, its step needs a closure: choose"
    with pytest.raises(UserError, match=message):
        make(name, network(), 0.1, torch.optim.LBFGS, {"lr": 0.1})


def test_one_of_the_family_is_no_base():
    inner = SAM(network().parameters(), lr=0.1)
    message = "SAM cannot be the base of LabelNoiseSGD, its step needs a closure"
    with pytest.raises(UserError, match=message):
        LabelNoiseSGD(inner, 0.1, generator(0))


def test_a_base_with_a_scheduler_is_still_a_base():
    """A scheduler wraps the base's step."""
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(sgd, 1)
    before = [p.detach().clone() for p in model.parameters()]
    SAM(sgd).step(closure_of(model, mse, *batches(1)[0]))
    moved = zip(before, model.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in moved)


def test_a_base_that_makes_no_optimizer():
    with pytest.raises(UserError, match=r"base must be a class .*, got one that makes a list"):
        SAM(network().parameters(), list)


@pytest.mark.parametrize("bad", [-0.5, float("nan"), float("inf"), "a", None])
@pytest.mark.parametrize("name", STRENGTHS)
def test_a_radius_that_is_set_later_is_checked_in_every_step(name, bad):
    """In the second group too, where the first one alone would climb."""
    model = network()
    groups = [{"params": list(model[0].parameters())}, {"params": list(model[2].parameters())}]
    if OPTIMIZERS[name] is MSAM:
        optimizer = MSAM(model, mse, lr=0.1, rho=0.3, params=groups)
    else:
        optimizer = OPTIMIZERS[name](groups, lr=0.1, rho=0.3)
    x, y = batches(1)[0]
    take_step(optimizer, model, x, y)
    optimizer.param_groups[1]["rho"] = bad
    before = weights(model)
    with pytest.raises(UserError, match=f"rho must be a finite number >= 0, got {bad!r}"):
        take_step(optimizer, model, x, y)
    assert same(weights(model), before)
    optimizer.param_groups[1]["rho"] = 0.1
    take_step(optimizer, model, x, y)
    assert not same(weights(model), before)


NUMBERS = [np.float32(0.25), np.float64(0.25), np.int64(1), torch.tensor(0.25), torch.tensor([1])]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_other_libraries_are_numbers(name, number):
    """Bit by bit the run of the plain number, and the state loads with weights_only."""
    ends = []
    for strength in (number, float(number)):
        model = network()
        optimizer = make(name, model, strength, torch.optim.SGD, {"lr": 0.1})
        for x, y in batches(2):
            take_step(optimizer, model, x, y)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        optimizer.load_state_dict(torch.load(file, weights_only=True))
        ends.append(weights(model))
    assert same(*ends)


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_a_groups_own_radius_too(number):
    optimizer = SAM([{"params": network().parameters(), "rho": number}], lr=0.1)
    optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)], "rho": number})
    assert [type(g["rho"]) for g in optimizer.base.param_groups] == [float, float]
    assert [g["rho"] for g in optimizer.base.param_groups] == [float(number)] * 2


@pytest.mark.parametrize(
    "bad", [True, "a", None, 1j, torch.ones(2), torch.tensor(True), 10**400], ids=repr
)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_number_is_refused(name, bad):
    with pytest.raises(UserError, match=f"{OPTIMIZERS[name].strength} must be a finite number"):
        make(name, network(), bad, torch.optim.SGD, {"lr": 0.1})


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (FriendlySAM, {"lam": "a"}, r"lam must be a number in \[0, 1\), got 'a'"),
        (FriendlySAM, {"lam": 1}, r"lam must be a number in \[0, 1\), got 1"),
        (FriendlySAM, {"sigma": "a"}, "sigma must be a finite number >= 0, got 'a'"),
        (GSAM, {"rho_min": 0.1, "lr_max": "a"}, "a number lr_max > lr_min = 0, got lr_max='a'"),
        (GSAM, {"rho_min": 0.1}, "a number lr_max > lr_min = 0, got lr_max=None"),
        (GSAM, {"rho_min": 0.1, "lr_max": 1, "lr_min": "a"}, "lr_min must be a finite number"),
        (LookSAM, {"k": True}, "k must be a whole number, got True"),
        (LookSAM, {"k": 2.5}, r"k must be a whole number, got 2\.5"),
        (LookSAM, {"k": 0}, "k must be >= 1, got 0"),
    ],
)
def test_options_of_one_member(kind, options, message):
    with pytest.raises(UserError, match=message):
        kind(network().parameters(), lr=0.1, **options)


@pytest.mark.parametrize("name", ASCENTS)
def test_a_model_that_is_none(name):
    with pytest.raises(UserError, match=r"model must be a torch\.nn\.Module, got int: name the"):
        make(name, network(), 0.1, None, {"lr": 0.1, "model": 3})


def test_a_closure_that_is_none():
    with pytest.raises(UserError, match=r"SAM\.step needs a closure"):
        SAM(network().parameters(), lr=0.1).step(3)


def test_classes_that_are_no_number():
    for bad in ("a", True, 1, 2.5):
        with pytest.raises(UserError, match=f"classes must be (a whole number|>= 2), got {bad!r}"):
            LabelNoiseSGD(
                network().parameters(), 0.1, generator(0), kind="flip", classes=bad, lr=0.1
            )


def test_m_sam_is_given_a_network_and_a_loss():
    with pytest.raises(UserError, match=r"model must be a torch\.nn\.Module, got generator: give"):
        MSAM(network().parameters(), mse, lr=0.1)
    with pytest.raises(UserError, match="loss must be a function of output and target, got int"):
        MSAM(network(), 3, lr=0.1)
    for bad in (True, 0, 1.5):
        with pytest.raises(UserError, match=f"m must be (a whole number|>= 1), got {bad!r}"):
            MSAM(network(), mse, lr=0.1, m=bad)


@pytest.mark.parametrize("rho", [0.0, 0.1])
@pytest.mark.parametrize("method", ["auto", "loop"])
def test_a_loss_that_returns_a_float(method, rho):
    with pytest.raises(UserError, match="loss must return a scalar tensor, got float: compute"):
        MSAM(network(), lambda f, y: 3.0, lr=0.1, rho=rho, method=method).step(*batches(1)[0])
