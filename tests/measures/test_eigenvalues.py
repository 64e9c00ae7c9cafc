"""λ_max from thinned data, and from the last time, against the dense Hessian."""

import numpy as np
import pytest
import torch
from torch import nn

from flatlab.measures.effort import Effort
from flatlab.measures.eigenvalues import THINNED, LambdaMax, Memory
from flatlab.problem import Problem

N = 600


def _problem(seed: int, kind: str) -> Problem:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(N, 6, generator=draw, dtype=torch.float64)
    y = torch.randint(3, (N,), generator=draw)
    if kind == "learnable":
        y = (x[:, 0] > 0).long() + (x[:, 1] > 1).long()
    if kind == "outlier":  # and it is not among the thinned examples
        x[1] *= 40
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype) / 2)
    return Problem(net, nn.CrossEntropyLoss(), (x, y))


def _truth(problem: Problem) -> float:
    """Return λ_max of the dense Hessian, by autograd from the definition."""
    params = {name: p.detach() for name, p in problem.params.items()}
    x, y = (torch.cat(part) for part in zip(*problem.batches, strict=True))

    def loss(theta):
        parts = zip(params, problem.split(theta), strict=True)
        return problem.loss(torch.func.functional_call(problem.model, dict(parts), (x,)), y)

    return float(torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, problem.theta))[-1])


@pytest.mark.parametrize("kind", ["noise", "learnable", "outlier"])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-6])
def test_from_thinned_data_it_is_within_its_error(kind, tolerance):
    inside = []
    for seed in range(20):
        problem = _problem(seed, kind)
        found = LambdaMax(tolerance=tolerance).read(problem, Effort(seed))
        truth = _truth(problem)
        inside.append(abs(found.value - truth) <= found.stderr + 1e-12)
        assert "thinned" in found.method
        assert found.stderr <= tolerance * found.value
    assert np.mean(inside) >= 0.9  # 97 % of 100 seeds


def test_few_examples_are_not_thinned():
    problem = _problem(0, "noise")
    x, y = (torch.cat(part) for part in zip(*problem.batches, strict=True))
    few = Problem(problem.model, problem.loss, (x[:100], y[:100]))
    assert 100 // max(THINNED) < 50
    assert LambdaMax().read(few, Effort(0)).method == "Lanczos"


def test_from_the_last_time_it_takes_fewer_products():
    problem, memory = _problem(0, "learnable"), Memory()
    measure = LambdaMax()
    cold, warm = Effort(0), Effort(0)
    measure.read(problem, cold, memory)
    with problem.moved(1e-3 * torch.ones(problem.size, dtype=torch.float64)):
        found = measure.read(problem, warm, memory)
        truth = _truth(problem)
    assert abs(found.value - truth) <= found.stderr
    assert warm.spent <= 3 < cold.spent
