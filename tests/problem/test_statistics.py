"""BatchNorm's statistics, also where the data cannot be one batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from flatlab.errors import UserError
from flatlab.problem import Problem

torch.set_num_threads(1)
CE = nn.CrossEntropyLoss()


class Sentences(nn.Module):
    """Two BatchNorms over positions, the second behind the first; any length."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(2, 3, 1), nn.Conv1d(3, 3, 1)
        self.norms, self.head = nn.ModuleList([nn.BatchNorm1d(3) for _ in "ab"]), nn.Linear(3, 3)

    def forward(self, x):
        x = torch.relu(self.norms[0](self.first(x)))
        return self.head(torch.relu(self.norms[1](self.second(x))).mean(2))


def sentences(lengths):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        draw = [(1 + k + torch.randn(7, 2, t).double()) for k, t in enumerate(lengths)]
        return Sentences().double(), [(x, torch.randint(3, (7,))) for x in draw]


def test_statistics_of_ragged_data_are_those_of_all_positions():
    model, batches = sentences([4, 9, 5, 4])
    problem = Problem(model, CE, batches, mode="recomputed")
    flat = [torch.cat([x.transpose(0, 1).flatten(1) for x, _ in batches], 1)[None]]
    for conv, norm in zip((model.first, model.second), problem.model.norms, strict=True):
        u = conv(flat[0])[0]
        assert torch.allclose(norm.running_mean, u.mean(1), rtol=1e-12)
        assert torch.allclose(norm.running_var, u.var(1), rtol=1e-12)
        scale = (u.var(1, correction=0) + norm.eps).sqrt()  # as a pass in training does
        flat[0] = torch.relu((u - u.mean(1)[:, None]) / scale[:, None])[None]


def test_they_agree_with_those_of_one_pass():
    model, batches = sentences([6, 6, 6])
    whole = Problem(model, CE, batches, mode="recomputed").model
    parts = [(x[:, :, :2], y) for x, y in batches] + [(x[:, :, 2:], y) for x, y in batches]
    ragged = Problem(model, CE, parts, mode="recomputed").model
    for one, other in zip(whole.norms, ragged.norms, strict=True):
        assert torch.allclose(one.running_mean, other.running_mean, rtol=1e-12)
        assert torch.allclose(one.running_var, other.running_var, rtol=1e-12)


def network():
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("n", "options"),
    [(1, {"mode": "recomputed"}), (1, {"mode": "train"}), (5, {"mode": "train", "batch_size": 2})],
)
def test_one_value_has_no_statistics(n, options):
    with pytest.raises(UserError, match="BatchNorm needs more than one value") as caught:
        Problem(network(), CE, (torch.ones(n, 5), torch.zeros(n).long()), **options)
    assert "\n" not in str(caught.value)


def test_inputs_that_do_not_fit_are_called_so_before_statistics():
    with pytest.raises(UserError, match="the model failed on a batch of shape"):
        Problem(network(), CE, (torch.ones(9, 3), torch.zeros(9).long()), mode="recomputed")
