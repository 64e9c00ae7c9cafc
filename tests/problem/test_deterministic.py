"""What is random is refused; what only rounds differently with gradients is not."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import dropout

from flatlab.errors import UserError
from flatlab.problem import Problem

torch.set_num_threads(1)
MSE = nn.MSELoss()
N = 40


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.inner(x.view(len(x), 6, 16)).mean(1))


class Reordered(nn.Linear):
    """Sums in another order if gradients are wanted, as some kernels do."""

    def __init__(self):
        super().__init__(96, 3)

    def forward(self, x):
        if not torch.is_grad_enabled():
            return super().forward(x)
        return super().forward(x.flip(1) * 0) + x.flip(1) @ self.weight.flip(1).T


class Random(nn.Linear):
    def __init__(self, noise):
        super().__init__(96, 3)
        self.noise = noise

    def forward(self, x):
        return super().forward(self.noise(x))


@pytest.mark.parametrize("make", [Encoder, Reordered])
@pytest.mark.parametrize("residual", [1e-3, 1e-4, 1e-5, 0.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fitted_model_is_deterministic(make, residual, dtype):
    """The loss is of the size of rounding of the outputs squared: its own digits mean nothing."""
    model, x = seeded(make).eval(), seeded(lambda: torch.randn(N, 96), 1)
    with torch.no_grad():
        y = model(x) + residual
    assert Problem(model, MSE, (x, y), dtype=dtype).value() < 2e-6


RANDOM = {
    "dropout that eval does not stop": lambda x: dropout(x, 0.1),
    "a rare dropout": lambda x: dropout(x, 1e-3),
    "an augmentation": lambda x: x.roll(int(torch.randint(1, 96, ())), 1),
    "noise of a thousandth": lambda x: x + 1e-3 * torch.randn_like(x),
}


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_random_model_is_refused(name, mode):
    data = seeded(lambda: (torch.randn(N, 96), torch.randn(N, 3)), 1)
    with pytest.raises(UserError, match="the model is not deterministic") as caught:
        seeded(lambda: Problem(Random(RANDOM[name]), MSE, data, mode=mode))
    assert ("measure in eval mode" in str(caught.value)) == (mode == "train")
    assert "\n" not in str(caught.value)


def test_dropout_in_training_is_refused_and_eval_is_the_way_out():
    data = seeded(lambda: (torch.randn(N, 96), torch.randn(N, 3)), 1)
    model = seeded(lambda: nn.Sequential(nn.Dropout(0.1), nn.Linear(96, 3)))
    with pytest.raises(UserError, match="or measure in eval mode"):
        Problem(model, MSE, data, mode="train")
    assert Problem(model, MSE, data).value() > 0


def test_a_random_loss_is_refused():
    data = seeded(lambda: (torch.randn(N, 96), torch.randn(N, 3)), 1)
    with pytest.raises(UserError, match="the loss is not deterministic"):
        Problem(nn.Linear(96, 3), lambda o, y: MSE(o + 0.1 * torch.randn_like(o), y), data)
