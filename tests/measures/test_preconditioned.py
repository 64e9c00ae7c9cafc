"""λ_max(P⁻¹∇²L): P against the steps that torch takes, the eigenvalue against whole matrices."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import flatlab as fl
from flatlab.errors import UserError
from flatlab.measures import Effort
from flatlab.measures.preconditioned import PreconditionedLambdaMax
from flatlab.problem import Problem

NAME = "preconditioned_lambda_max"


def case(width=6):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2)).double()
        x, y = torch.randn(20, 4).double(), torch.randn(20, 2).double()
    return model, nn.MSELoss(), (x, y)


def trained(make, steps=7):
    """Return a trained model, its optimizer, and θ before its last step."""
    model, loss, (x, y) = case()
    optimizer, before = make(model.parameters()), None
    for _ in range(steps):
        before = torch.cat([p.detach().clone().flatten() for p in model.parameters()])
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return model, optimizer, before


def direction(optimizer):
    """What the last step divided by P: Adam's corrected mean gradient, or the gradient."""
    found = []
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state[p]
            if "exp_avg" in state:
                found.append(state["exp_avg"] / (1 - group["betas"][0] ** float(state["step"])))
            else:
                found.append(p.grad)
    return torch.cat([part.flatten() for part in found])


OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam, large ε": lambda p: torch.optim.Adam(p, lr=0.01, eps=0.1, betas=(0.5, 0.9)),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.0),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "rmsprop, centred": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_preconditioner_is_what_torch_divides_by(name):
    model, optimizer, before = trained(OPTIMIZERS[name])
    made = Problem(model, nn.MSELoss(), case()[2], preconditioner=optimizer)
    step = made.theta - before
    expected = -0.01 * direction(optimizer) / step
    np.testing.assert_allclose(made.preconditioner().diagonal, expected.numpy(), rtol=1e-9)


@pytest.mark.parametrize("method", ["auto", "lanczos"])
@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_it_is_the_largest_eigenvalue(name, method):
    model, optimizer, _ = trained(OPTIMIZERS[name])
    made = Problem(model, nn.MSELoss(), case()[2], preconditioner=optimizer)
    P, H = made.preconditioner().diagonal.numpy(), made.dense().numpy()
    truth = float(np.linalg.eigvals(H / P[:, None]).real.max())  # P⁻¹H itself, not symmetric
    found = PreconditionedLambdaMax(method=method).read(made, Effort(0))
    assert found.exact == (method == "auto")
    assert abs(found.value - truth) <= max(found.stderr, 1e-9 * truth)
    assert found.stderr <= 2e-3 * truth
    assert "after 7 steps" in found.method


@pytest.mark.parametrize(
    ("make", "threshold"),
    [
        (lambda p: torch.optim.Adam(p, lr=0.01), 38 / 0.01),
        (lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.5, 0.9)), 6 / 0.01),
        (lambda p: torch.optim.RMSprop(p, lr=0.01), 2 / 0.01),
        (lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9), 3.8 / 0.01),
    ],
)
def test_the_threshold_is_where_the_frozen_optimizer_leaves_a_parabola(make, threshold):
    """With P fixed, ½λθ² in P's units: θ ← θ − η·m, m ← βm + s·λθ; its spectral radius is 1."""
    model, optimizer, _ = trained(make)
    made = Problem(model, nn.MSELoss(), case()[2], preconditioner=optimizer)
    found = made.preconditioner().threshold
    assert found == pytest.approx(threshold)
    (group,) = optimizer.param_groups
    adam = "betas" in group
    beta = group["betas"][0] if adam else group["momentum"]
    share, lr = (1 - beta if adam else 1.0), group["lr"]

    def radius(curvature):
        pull = share * curvature
        return np.abs(np.linalg.eigvals([[1 - lr * pull, -lr * beta], [pull, beta]])).max()

    assert radius(0.999 * found) <= 1 + 1e-9 < radius(1.001 * found)


def test_selected_parameters_and_a_diagonal_by_name():
    model, loss, data = case()
    twos = {name: torch.full_like(p, 2.0) for name, p in model.named_parameters()}
    found = fl.measure(model, loss, data, [NAME, "lambda_max"], preconditioner=twos)
    assert found[NAME].value == pytest.approx(found["lambda_max"].value / 2, rel=1e-12)
    part = fl.measure(model, loss, data, [NAME, "lambda_max"], params="0", preconditioner=twos)
    assert part[NAME].value == pytest.approx(part["lambda_max"].value / 2, rel=1e-12)
    assert part[NAME].value < found[NAME].value


def test_a_wrapper_gives_its_base():
    model, loss, data = case()
    optimizer = fl.optim.SAM(model.parameters(), torch.optim.Adam, lr=0.01, rho=0.05)

    def closure():
        optimizer.zero_grad()
        value = loss(model(data[0]), data[1])
        value.backward()
        return value

    optimizer.step(closure)
    found = fl.measure(model, loss, data, NAME, preconditioner=optimizer)[NAME]
    assert "Adam after 1 steps" in found.method


def other():
    model, loss, (x, y) = case()
    optimizer = torch.optim.Adam(model.parameters())
    loss(model(x), y).backward()
    optimizer.step()
    return optimizer


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda model: None, "there is no preconditioner: pass measure"),
        (lambda model: torch.optim.SGD(model.parameters(), lr=0.1), "SGD, which has no second"),
        (lambda model: torch.optim.Adam(model.parameters()), "no second moments of 0.weight yet"),
        (lambda model: other(), "does not step 0.weight of this model"),
        (lambda model: "adam", "preconditioner is .*, which has no second moments"),
        (lambda model: {"0.weight": torch.ones(2)}, r"needs 0.weight of shape \(6, 4\)"),
        (
            lambda model: {name: 0 * p for name, p in model.named_parameters()},
            "not a positive number for 44 of 44 parameters",
        ),
    ],
)
def test_what_gives_no_preconditioner_is_one_line(given, says):
    model, loss, data = case()
    with pytest.raises(UserError, match=says) as caught:
        fl.measure(model, loss, data, NAME, preconditioner=given(model))
    assert "\n" not in str(caught.value)


def test_a_stored_run_has_its_optimizer(tmp_path):
    """The command reads Adam's moments from the checkpoint; they are those of torch's own Adam."""
    from flatlab.cli.targets import target_of

    data = fl.data.xor(d=4, n=12, seed=0, n_test=5)
    phase = fl.Phase("adam", lr=0.01, epochs=3)
    run = fl.train(fl.models.MLP(widths=(5,)), data, schedule=[phase], out=tmp_path / "run")
    target = target_of(str(run.path))
    found = fl.measure(
        target.model, target.loss, target.data, NAME, preconditioner=target.preconditioner
    )[NAME]
    assert "Adam after 3 steps" in found.method and found.details["threshold"] == pytest.approx(
        3800
    )
    again = copy.deepcopy(run.config.arch.module(data, run.config.seed))
    optimizer = torch.optim.Adam(again.parameters(), lr=0.01)
    x, y = torch.tensor(data.x_train), torch.tensor(data.y_train)
    dtype = next(again.parameters()).dtype
    for _ in range(3):
        optimizer.zero_grad()
        run.config.loss.torch(again(x.to(dtype)), y.to(dtype)).backward()
        optimizer.step()
    alone = fl.measure(again, run.config.loss, data, NAME, preconditioner=optimizer)[NAME]
    assert found.value == pytest.approx(alone.value, rel=1e-4)  # float32 training
    plain = fl.train(fl.models.TwoLayer(width=3), data, out=tmp_path / "sgd",
                     schedule=[fl.Phase("sgd", lr=0.01, epochs=2)])  # fmt: skip
    target = target_of(str(plain.path))
    with pytest.raises(UserError, match="SGD, which has no second moments"):
        fl.measure(target.model, target.loss, target.data, NAME,
                   preconditioner=target.preconditioner)  # fmt: skip
