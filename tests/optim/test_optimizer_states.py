"""A saved state loads into the optimizer that it came from, and into no other."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from optim_cases import NAMES, batches, make, network, same, take_step, weights

from flatlab.errors import UserError
from flatlab.optim import OPTIMIZERS, SAM

SGD, ADAM = torch.optim.SGD, torch.optim.Adam


def stepped(name, base=SGD, steps=2):
    model = network()
    optimizer = make(name, model, 0.3, base, {"lr": 0.01})
    for x, y in batches(steps):
        take_step(optimizer, model, x, y)
    return model, optimizer


def unnamed(state):
    """Return a state as it was before states had names."""
    return {key: value for key, value in state.items() if key != "names"}


@pytest.mark.parametrize("name", NAMES)
def test_every_other_class_is_refused_and_nothing_changes(name):
    _, saved = stepped(name)
    for other in set(NAMES) - {name}:
        model, optimizer = stepped(other)
        before = copy.deepcopy(optimizer.state_dict())
        one, two = OPTIMIZERS[name].__name__, OPTIMIZERS[other].__name__
        with pytest.raises(UserError, match=f"is of {one} over SGD, not of {two} over SGD: make"):
            optimizer.load_state_dict(saved.state_dict())
        assert repr(optimizer.state_dict()) == repr(before)
        take_step(optimizer, model, *batches(1)[0])


@pytest.mark.parametrize(("one", "two"), [(SGD, ADAM), (ADAM, SGD)])
@pytest.mark.parametrize("name", NAMES)
def test_another_base_is_refused(name, one, two):
    _, saved = stepped(name, one)
    model, optimizer = stepped(name, two)
    kind = OPTIMIZERS[name].__name__
    message = f"is of {kind} over {one.__name__}, not of {kind} over {two.__name__}: make"
    with pytest.raises(UserError, match=message):
        optimizer.load_state_dict(saved.state_dict())
    take_step(optimizer, model, *batches(1)[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_state_without_names_that_fits_is_taken(name):
    model, saved = stepped(name)
    other, optimizer = stepped(name, steps=1)
    optimizer.load_state_dict(unnamed(saved.state_dict()))
    other.load_state_dict(model.state_dict())
    if name != "label_noise":  # whose generator is the caller's
        for one, two in ((saved, model), (optimizer, other)):
            take_step(one, two, *batches(3)[2])
        assert same(weights(model), weights(other))


@pytest.mark.parametrize(
    ("one", "two", "differ"),
    [
        (("sam", SGD), ("look_sam", SGD), "steps"),
        (("look_sam", SGD), ("sam", SGD), "steps"),
        (("label_noise", SGD), ("sam", SGD), "rho"),
        (("sam", SGD), ("sam", ADAM), "amsgrad, betas"),
        (("sam", ADAM), ("sam", SGD), "dampening, momentum, nesterov"),
    ],
)
def test_a_state_without_names_that_does_not_fit_is_refused(one, two, differ):
    _, saved = stepped(*one)
    model, optimizer = stepped(*two)
    with pytest.raises(UserError, match=rf"this state is not of .*, they differ in {differ}"):
        optimizer.load_state_dict(unnamed(saved.state_dict()))
    take_step(optimizer, model, *batches(1)[0])


def test_the_state_of_another_network_is_refused():
    _, saved = stepped("sam")
    optimizer = SAM(torch.nn.Linear(2, 2).parameters(), lr=0.5)
    with pytest.raises(UserError, match=re.escape("this state is of other parameters: loaded")):
        optimizer.load_state_dict(saved.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.5
