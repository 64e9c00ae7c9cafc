"""What every member of the catalogue promises, whatever its algorithm."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from optim_cases import (
    ASCENTS,
    BASES,
    NAMES,
    batches,
    closure_of,
    furthest,
    make,
    mse,
    network,
    noisy_network,
    same,
    take_step,
    weights,
)

from flatlab.errors import UserError
from flatlab.optim import MSAM, OPTIMIZERS, LabelNoiseSGD


def trained(name, strength, base, steps=5, options=None):
    model = network()
    kind, base_options = BASES[base]
    optimizer = make(name, model, strength, kind, {**base_options, **(options or {})})
    for x, y in batches(steps):
        take_step(optimizer, model, x, y)
    return model, optimizer


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", NAMES)
def test_at_strength_zero_it_is_the_base(name, base):
    """Bit by bit over five steps."""
    model, _ = trained(name, 0.0, base)
    plain = network()
    kind, options = BASES[base]
    optimizer = kind(plain.parameters(), **options)
    for x, y in batches(5):
        optimizer.zero_grad()
        mse(plain(x), y).backward()
        optimizer.step()
    assert same(weights(model), weights(plain))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", NAMES)
def test_at_strength_zero_batchnorm_and_dropout_are_the_bases(name, base):
    """Weights, running statistics and the random numbers drawn, with nothing said of the model."""
    kind, options = BASES[base]
    ends = []
    for wrapped in (True, False):
        model = noisy_network()
        optimizer = (
            make(name, model, 0.0, kind, options)
            if wrapped
            else kind(model.parameters(), **options)
        )
        with torch.random.fork_rng():
            torch.manual_seed(4)
            for x, y in batches(3):
                if wrapped:
                    take_step(optimizer, model, x, y)
                    continue
                optimizer.zero_grad()
                mse(model(x), y).backward()
                optimizer.step()
            ends.append([*model.state_dict().values(), torch.rand(3)])
    assert same(*ends)


@pytest.mark.parametrize("name", NAMES)
def test_a_strength_moves_it_away_from_the_base(name):
    """So that the test above is no test of nothing."""
    moved, still = (weights(trained(name, s, "sgd")[0]) for s in (0.3, 0.0))
    assert furthest(moved, still) > 1e-4


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_ends_in_the_same_bits(name, base):
    """Saved after three steps, on disk with weights_only; momentum, moments and counters too."""
    through, _ = trained(name, 0.3, base, steps=7)
    model, optimizer = trained(name, 0.3, base, steps=3)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)

    fresh = network(seed=9)
    kind, options = BASES[base]
    again = make(name, fresh, 0.1, kind, {**options, "lr": 1.0})  # both come from the state
    fresh.load_state_dict(saved["model"])
    again.load_state_dict(saved["optimizer"])
    if isinstance(again, LabelNoiseSGD):  # its noise and generator are the caller's
        again.noise = 0.3
        again.generator = optimizer.generator
    for x, y in batches(7)[3:]:
        take_step(again, fresh, x, y)
    assert same(weights(fresh), weights(through))
    assert again.param_groups is again.base.param_groups


@pytest.mark.parametrize("name", NAMES)
def test_a_zero_gradient_is_no_ascent_and_no_nan(name):
    """At an exact minimum nothing moves: lr · 0. Label noise is off here, it moves every label."""
    model = network()
    x = batches(1)[0][0]
    y = model(x).detach()
    strength = 0.0 if OPTIMIZERS[name] is LabelNoiseSGD else 0.5
    optimizer = make(name, model, strength, torch.optim.SGD, {"lr": 0.1})
    before = weights(model)
    for _ in range(3):
        take_step(optimizer, model, x, y)
    # m-SAM runs the network on two rows at a time, whose products may round otherwise: a residual
    # of 1e-16 is a gradient, and climbs. Its own tests have an example whose gradient is 0.
    if OPTIMIZERS[name] is not MSAM:
        assert same(weights(model), before)
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_without_gradient_is_left_alone(name):
    model = network()
    model.register_parameter("unused", torch.nn.Parameter(torch.tensor([7.0, -0.0])))
    model[2].bias.requires_grad_(False)
    frozen = model[2].bias.detach().clone()
    decay = {"lr": 0.1, "weight_decay": 0.5}  # torch decays what has a gradient, be it zero
    optimizer = make(name, model, 0.3, torch.optim.SGD, decay)
    for x, y in batches(3):
        take_step(optimizer, model, x, y)
    assert model.unused.grad is None
    assert model.unused.tolist() == [7.0, 0.0]
    assert torch.equal(model[2].bias, frozen)


@pytest.mark.parametrize("name", NAMES)
def test_a_scheduler_of_the_wrapper_acts_on_the_base(name):
    model = network()
    optimizer = make(name, model, 0.3, torch.optim.SGD, {"lr": 1.0})
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.0)
    x, y = batches(1)[0]
    take_step(optimizer, model, x, y)
    scheduler.step()
    assert optimizer.base.param_groups[0]["lr"] == 0
    before = weights(model)
    take_step(optimizer, model, x, y)
    assert same(weights(model), before)  # lr = 0 shows too that θ is found again bit by bit


SCHEDULERS = {
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=8),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 8),
    "warm-up": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [
            torch.optim.lr_scheduler.LinearLR(o, total_iters=3),
            torch.optim.lr_scheduler.StepLR(o, 2),
        ],
        [3],
    ),
}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_scheduled_run_at_strength_zero_is_the_bases(name, scheduler):
    """Bit by bit: the scheduler of the wrapper, which may turn momentum too, is the base's."""
    ends = []
    for wrapped in (True, False):
        model = network()
        options = {"lr": 0.05, "momentum": 0.9}
        optimizer = (
            make(name, model, 0.0, torch.optim.SGD, options)
            if wrapped
            else torch.optim.SGD(model.parameters(), **options)
        )
        schedule = SCHEDULERS[scheduler](optimizer)
        for x, y in batches(7):
            if wrapped:
                take_step(optimizer, model, x, y)
            else:
                optimizer.zero_grad()
                mse(model(x), y).backward()
                optimizer.step()
            schedule.step()
        ends.append(weights(model))
    assert same(*ends)


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_returned_is_the_loss_at_theta(name):
    model = network()
    optimizer = make(name, model, 0.0 if name == "label_noise" else 0.3, None, {"lr": 0.1})
    x, y = batches(1)[0]
    expected = mse(model(x), y).item()
    # m-SAM averages the groups' losses: one rounding more.
    assert take_step(optimizer, model, x, y).item() == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_is_independent(name):
    """copy.deepcopy of model and optimizer together continues on the copy alone."""
    model, optimizer = trained(name, 0.3, "momentum", steps=2)
    torch.optim.lr_scheduler.StepLR(optimizer, 10)  # which wraps `step`
    if isinstance(optimizer, LabelNoiseSGD):
        pytest.skip("a torch.Generator cannot be copied")
    other_model, other = copy.deepcopy((model, optimizer))
    before = weights(model)
    x, y = batches(1)[0]
    take_step(other, other_model, x, y)
    assert same(weights(model), before)
    assert not same(weights(other_model), before)


@pytest.mark.parametrize("name", NAMES)
def test_a_strength_below_zero_is_refused(name):
    option = OPTIMIZERS[name].strength
    for bad in (-0.5, float("nan"), float("inf")):
        with pytest.raises(UserError, match=rf"{option} must be a finite number >= 0, got {bad}"):
            make(name, network(), bad, torch.optim.SGD, {"lr": 0.1})


@pytest.mark.parametrize("name", NAMES)
def test_options_that_the_base_does_not_have(name):
    with pytest.raises(UserError, match=r"SGD refuses its options: .*momentun"):
        make(name, network(), 0.1, torch.optim.SGD, {"momentun": 0.9})
    with pytest.raises(UserError, match="SGD refuses its options: Invalid learning rate: -1"):
        make(name, network(), 0.1, torch.optim.SGD, {"lr": -1})


@pytest.mark.parametrize("name", NAMES)
def test_another_optimizers_state_is_refused(name):
    model = network()
    optimizer = make(name, model, 0.1, torch.optim.SGD, {"lr": 0.1})
    plain = torch.optim.SGD(model.parameters(), lr=0.1).state_dict()
    with pytest.raises(UserError, match=r"lacks base, counters: load .* into \.base"):
        optimizer.load_state_dict(plain)


@pytest.mark.parametrize("name", ASCENTS)
def test_theta_is_found_again_bit_by_bit(name):
    """With lr = 0 the weights are what they were; in between they were elsewhere."""
    model = network(dtype=torch.float32)
    optimizer = make(name, model, 0.7, torch.optim.SGD, {"lr": 0.0})
    before, away = weights(model), []
    for x, y in batches(3, dtype=torch.float32):
        closure = closure_of(model, mse, x, y)

        def watching(closure=closure):
            away.append(not same(weights(model), before))
            return closure()

        optimizer.step(watching)
        assert same(weights(model), before)
    assert away[:2] == [False, True]


@pytest.mark.parametrize("name", ASCENTS)
def test_two_calls_are_the_closure_form(name):
    """Bit by bit, over a run with momentum, and also if an idle second pass is run."""
    ends = []
    for form in ("closure", "two calls", "always two passes"):
        model = network()
        optimizer = make(name, model, 0.3, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9})
        for x, y in batches(7):
            if form == "closure":
                take_step(optimizer, model, x, y)
                continue
            optimizer.zero_grad()
            mse(model(x), y).backward()
            if optimizer.first_step() or form == "always two passes":
                mse(model(x), y).backward()
            optimizer.second_step()
        ends.append(weights(model))
    assert same(ends[0], ends[1])
    assert same(ends[0], ends[2])


@pytest.mark.parametrize("name", ASCENTS)
def test_a_second_pass_that_fails_leaves_theta(name):
    model = network()
    optimizer = make(name, model, 0.3, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})
    x, y = batches(1)[0]
    closure, before = closure_of(model, mse, x, y), weights(model)

    def failing():
        if closure.calls == 1:
            raise KeyboardInterrupt("in the second pass")
        return closure()

    with pytest.raises(KeyboardInterrupt, match="in the second pass"):
        optimizer.step(failing)
    assert same(weights(model), before)
    # The step is as if never begun: what follows is what an undisturbed run does.
    take_step(optimizer, model, x, y)
    other = network()
    take_step(make(name, other, 0.3, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), other, x, y)
    assert same(weights(model), weights(other))


@pytest.mark.parametrize("name", ASCENTS)
def test_an_ascent_that_fails_half_way_leaves_theta(name, monkeypatch):
    """Out of memory after the first parameter has moved, say."""
    model = network()
    optimizer = make(name, model, 0.3, torch.optim.SGD, {"lr": 0.1})

    def ascend(parts):
        parts[0].params[0].add_(1.0)
        raise MemoryError

    x, y = batches(1)[0]
    before = weights(model)
    with monkeypatch.context() as patch:
        patch.setattr(optimizer, "_ascend", ascend)
        with pytest.raises(MemoryError):
            optimizer.step(closure_of(model, mse, x, y))
    assert same(weights(model), before)
    take_step(optimizer, model, x, y)
    assert not same(weights(model), before)


@pytest.mark.parametrize("name", ASCENTS)
def test_calls_out_of_order_are_refused(name):
    model = network()
    optimizer = make(name, model, 0.3, torch.optim.SGD, {"lr": 0.1})
    x, y = batches(1)[0]
    with pytest.raises(UserError, match="step needs a closure that recomputes the loss"):
        optimizer.step()
    with pytest.raises(UserError, match="second_step needs a first_step"):
        optimizer.second_step()
    with pytest.raises(UserError, match="second_pass needs a first_step"), optimizer.second_pass():
        pass
    with pytest.raises(UserError, match=r"call loss\.backward"):
        optimizer.first_step()
    before = weights(model)
    mse(model(x), y).backward()
    assert optimizer.first_step()
    mse(model(x), y).backward()
    with pytest.raises(UserError, match="first_step was called twice"):
        optimizer.first_step()
    with pytest.raises(UserError, match="save after second_step"):
        optimizer.state_dict()
    optimizer.cancel()
    assert same(weights(model), before)
    with pytest.raises(UserError, match="second_step needs a first_step"):
        optimizer.second_step()


@pytest.mark.parametrize("name", ASCENTS)
def test_a_closure_that_forgets_or_remembers_to_clear_gradients(name):
    """The step clears them itself, so both closures mean the same."""
    ends = []
    for clears in (False, True):
        model = network()
        optimizer = make(name, model, 0.3, torch.optim.SGD, {"lr": 0.1})
        for x, y in batches(3):
            closure = closure_of(model, mse, x, y)
            optimizer.step(
                lambda o=optimizer, c=closure, z=clears: (z and o.zero_grad(False)) or c()
            )
        ends.append(weights(model))
    assert same(*ends)


@pytest.mark.parametrize("name", ASCENTS)
def test_the_base_may_be_given_as_an_object(name):
    ends = []
    for given in ("class", "object"):
        model = network()
        if given == "class":
            optimizer = OPTIMIZERS[name](model.parameters(), torch.optim.Adam, rho=0.3, lr=0.01)
        else:
            adam = torch.optim.Adam(model.parameters(), lr=0.01)
            optimizer = OPTIMIZERS[name](adam, rho=0.3)
            assert optimizer.base is adam
        for x, y in batches(3):
            take_step(optimizer, model, x, y)
        ends.append(weights(model))
    assert same(*ends)


@pytest.mark.parametrize("name", ASCENTS)
def test_an_added_group_is_trained_with_its_own_radius(name):
    model = network()
    optimizer = OPTIMIZERS[name](model[0].parameters(), rho=0.3, lr=0.1)
    optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.2, "rho": 0.0})
    optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
    assert [g["rho"] for g in optimizer.base.param_groups] == [0.3, 0.0, 0.3]
    assert [g["lr"] for g in optimizer.base.param_groups] == [0.1, 0.2, 0.1]
    x, y = batches(1)[0]
    before = weights(model)
    mse(model(x), y).backward()
    optimizer.first_step()
    moved = [not torch.equal(a, b) for a, b in zip(weights(model), before, strict=True)]
    assert moved == [True, True, False, False]
    optimizer.cancel()
    with pytest.raises(UserError, match="rho must be a finite number >= 0, got -1"):
        optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)], "rho": -1})
