"""A budget is kept, and a measure stopped by its budget gives an honest estimate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import t
from torch import nn

from flatlab.measures import Budget, Effort, effort
from flatlab.measures.average_sharpness import AverageSharpness
from flatlab.measures.noise import Alignment
from flatlab.measures.probes import sketch
from flatlab.measures.trace import Diagonal, Frobenius, LayerTrace, Trace
from flatlab.problem import Problem

CE = nn.CrossEntropyLoss()


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def problem(n=300, sizes=(5, 6, 3), act=nn.ReLU, dtype=torch.float64, data=None):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        d, width, classes = sizes
        model = nn.Sequential(nn.Linear(d, width), act(), nn.Linear(width, classes)).to(dtype)
        x, y = torch.randn(n, d, dtype=dtype), torch.randint(0, classes, (n,))
    return Problem(model, CE, data or (x, y))


@pytest.mark.slow
def test_a_diagonal_under_a_budget_is_within_its_error():
    made = problem()
    whole = Diagonal().read(made, Effort(0))
    inside = []
    for seed in range(100):
        effort = Effort(seed, Budget(products=8))
        paid = Diagonal(tolerance=1e-6).read(made, effort)
        assert not paid.complete and not paid.exact and effort.spent == 8
        off = np.abs(paid.value - whole.value)
        inside.append(np.mean(off <= t.ppf(0.975, paid.dof) * paid.stderr + 1e-12))
    assert 0.9 <= np.mean(inside) <= 0.99


def test_a_dense_diagonal_asks_the_budget():
    made = problem(sizes=(3, 4, 2), act=nn.Tanh)
    effort = Effort(0, Budget(products=5))
    assert made.size == 26 and not Diagonal().read(made, effort).exact
    assert effort.spent <= 5


def test_alignment_asks_the_budget():
    made = problem(300)
    effort = Effort(0, Budget(products=20))
    found = Alignment(tolerance=1e-6).read(made, effort)
    assert not found.exact and not found.complete and effort.spent <= 22
    assert Alignment().read(made, Effort(0)).exact


def test_a_budget_too_small_for_all_examples_makes_a_trace_an_estimate():
    for measure in (Trace(), LayerTrace(), Diagonal()):
        made = problem(1500)
        exact, effort = measure.read(made, Effort(0)), Effort(0, Budget(products=20))
        assert exact.exact and "per-example" in exact.method
        found = measure.read(problem(1500), effort)
        assert not found.exact and not found.complete and effort.spent <= 20


def test_with_enough_budget_it_is_exact():
    made = problem()
    for measure in (
        Trace(),
        LayerTrace(),
        Trace(matrix="gram"),
        Trace(matrix="fisher"),
    ):
        whole = measure.read(made, Effort(0))
        paid = measure.read(made, Effort(0, Budget(seconds=600)))
        assert paid.exact and paid.complete and paid.dof is None
        np.testing.assert_allclose(paid.value, whole.value, rtol=1e-10)  # another order of a sum
        assert not np.any(paid.stderr)


def test_examples_of_several_shapes():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.token(x).mean(1))

    draw = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Mean().double()
    loader = [
        (
            torch.randint(9, (20, 5 + i % 3), generator=draw),
            torch.randint(3, (20,), generator=draw),
        )
        for i in range(6)
    ]
    made = Problem(model, CE, loader)
    whole = Trace().read(made, Effort(0)).value
    assert Trace().read(made, Effort(0, Budget(seconds=600))).value == pytest.approx(whole)


@pytest.mark.parametrize("products", [1, 3, 6, 20])
@pytest.mark.parametrize("measure", [Trace(), Frobenius(), LayerTrace()])
def test_a_matrix_that_is_too_dear_is_probed(measure, products):
    def made():  # 24 parameters: dense without a budget
        return problem(act=nn.Tanh, sizes=(3, 3, 3))

    assert measure.read(made(), Effort(0)).method == "exact, dense"
    effort = Effort(0, Budget(products=products))
    outcome = measure.read(made(), effort)
    # Two probes, and one product that says what they cost, are made in any case.
    assert effort.spent <= max(products, 3) and not outcome.exact
    assert measure.read(made(), Effort(0, Budget(products=25))).exact


def test_a_sketch_takes_at_most_half_of_a_budget():
    made = problem(act=nn.Tanh)
    for products, width in ((1, 0), (3, 0), (4, 1), (9, 2), (100, 8)):
        effort = Effort(0, Budget(products=products))
        Q, AQ = sketch(made.matrix(), effort)
        assert Q.shape == AQ.shape == (made.size, width)
        assert effort.spent == max(1, 2 * width)


def test_the_expectation_follows_the_error():
    """Towards the end of an estimate the expected number of products is the one it takes."""
    seen = []
    effort = Effort(0, tick=lambda spent, expected, _: seen.append((spent, expected)))
    AverageSharpness(tolerance=0.03, max_products=4000).read(problem(), effort)
    assert seen[0] == (0, 25) or seen[0][0] == 1  # before the first pair
    total = effort.spent
    assert total > 100  # more than was expected at first
    late = [expected for spent, expected in seen if spent > total / 2]
    assert all(0.5 * total <= expected <= 1.5 * total for expected in late)
    assert all(expected is None or expected >= spent for spent, expected in seen)


def test_the_expectation_knows_the_budget(clock):
    counted = Effort(0, Budget(products=30))
    counted.expect(100)
    assert counted.expected == 30
    watch = clock(effort)
    timed = Effort(0, Budget(seconds=0.02))
    timed.expect(10_000)
    timed.spend(1)
    watch.now += 0.008
    assert timed.expected == 3  # 2.5 products at this pace


def test_exact_traces_expect_what_they_take():
    ticks = []
    effort = Effort(0, tick=lambda *told: ticks.append(told))
    Trace(matrix="gram").read(problem(), effort)
    # 300 examples are three batches, of 128, 128 and 44, so 3 + 3 + 1 pieces.
    assert ticks[0] == (0, effort.spent, 1 / 7)
