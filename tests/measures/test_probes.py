"""Means over random probes: their standard errors, against scipy and against their own spread."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from flatlab.measures import Budget, Effort, spectrum
from flatlab.measures.average_sharpness import AverageSharpness
from flatlab.measures.probes import PILOT, Sample, widening
from flatlab.measures.trace import Frobenius, LayerTrace
from flatlab.problem import Problem

ROWS = np.random.default_rng(0).standard_normal((PILOT + 16, 2)) * [1.0, 30.0] + [0.0, 100.0]


@pytest.mark.parametrize("count", [2, 5, PILOT + 16])
def test_a_sample_that_a_limit_ended_has_the_usual_standard_error(count):
    drawn = Sample(ROWS[:count], complete=False)
    assert drawn.dof == count - 1
    wider = widening(stats.skew(ROWS[:count]), count, count - 1)
    # Both compute the root of Σ(x − mean)²/((n − 1) n) in float64; a few roundings apart.
    np.testing.assert_allclose(drawn.stderr, wider * stats.sem(ROWS[:count]), rtol=1e-9)


def test_a_complete_sample_has_the_spread_of_its_pilot_and_the_mean_of_all():
    drawn = Sample(ROWS, complete=True)
    assert drawn.dof == PILOT - 1
    expected = stats.tstd(ROWS[:PILOT], axis=0) / np.sqrt(len(ROWS))
    wider = widening(stats.skew(ROWS[:PILOT]), len(ROWS), PILOT - 1)
    np.testing.assert_allclose(drawn.stderr, wider * expected, rtol=1e-9)
    np.testing.assert_allclose(drawn.mean, ROWS.mean(0), rtol=1e-15)


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda rng, shape: rng.normal(size=shape), 0.0),
        (lambda rng, shape: rng.chisquare(1, shape), 1.0),
        (lambda rng, shape: -rng.chisquare(2, shape), -2.0),
        (lambda rng, shape: rng.laplace(size=shape), 0.0),
    ],
)
def test_intervals_of_skewed_rows_cover(draw, mean):
    """Student's alone cover 90 % of χ²₁; 4,000 samples know a share of 95 % to 0.7 points."""
    rows = draw(np.random.default_rng(3), (PILOT, 4000))
    drawn = Sample(rows, complete=False)
    reach = stats.t.ppf(0.975, drawn.dof) * drawn.stderr
    assert 0.94 <= np.mean(np.abs(drawn.mean - mean) <= reach) <= 0.985


def test_the_densities_have_the_usual_standard_error():
    np.testing.assert_allclose(spectrum._stderr(ROWS), stats.sem(ROWS), rtol=1e-13)


class Whole:
    """A whole matrix in the place of one known by its products."""

    def __init__(self, whole):
        self.whole, self.size = whole, len(whole)

    def __matmul__(self, v):
        return self.whole @ v


def test_the_error_of_a_frobenius_norm_is_its_spread_over_seeds():
    """Over 100 seeds; both numbers are known to 7 %, and an error of ‖A‖_F² over ‖A‖_F is twice it.

    The 16 largest eigenvalues have less than half of ‖A‖_F², so the sketch leaves much to probes.
    """
    model = nn.Linear(60, 1, bias=False).double()
    made = Problem(model, nn.MSELoss(), (torch.eye(60).double(), torch.zeros(60, 1).double()))
    whole = Whole(torch.diag(torch.linspace(1, 2, 60).double()))
    whole.whole[0, 1:] = whole.whole[1:, 0] = 0.3  # ±1 probes know a diagonal matrix exactly
    made.matrix = lambda kind="hessian": whole
    found = [Frobenius(method="probes").read(made, Effort(seed)) for seed in range(100)]
    values, errors = (
        np.array([getattr(each, name) for each in found]) for name in ("value", "stderr")
    )
    assert not any(each.exact for each in found)
    truth = float(whole.whole.norm())
    assert abs(values.mean() - truth) < 4 * values.std() / 10
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(values.std(), rel=0.25)


def test_equal_rows_show_no_error():
    """A form in signs that is not constant differs from any number with probability 1/4."""
    same = np.full((PILOT, 2), 3.0) * [1.0, 0.0]
    assert np.isinf(Sample(same[:3], complete=False).stderr).all()
    assert not Sample(same, complete=True).stderr.any()  # (3/4)^23
    drawn = Sample(same, complete=True, signs=False)
    assert np.isinf(drawn.stderr).all() and "rarer than 0.12" in drawn.said("")
    mixed = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 5.0]])
    assert np.isinf(Sample(mixed, complete=False).stderr).tolist() == [True, False]


def test_the_spread_of_tiny_rows_does_not_vanish():
    tiny = Sample(1e-180 * ROWS, complete=True).stderr / 1e-180
    np.testing.assert_allclose(tiny, Sample(ROWS, complete=True).stderr, rtol=1e-9)


def off():
    """A unit that is off, but for one step in forty."""
    model = nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 1)).double()
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(-0.05)
        model[2].weight.fill_(50.0)
        model[2].bias.zero_()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 3)))
    x = 1.5 * x / x.norm(dim=1, keepdim=True)
    return model, nn.MSELoss(), (x, torch.zeros(30, 1).double())


def test_a_rare_event_is_waited_for():
    """Twenty-four equal probes stopped at 0 ± 0; a few events still make a rough mean."""
    model, loss, (x, y) = off()
    steps = 0.01 * torch.from_numpy(np.random.default_rng(1).normal(size=(200_000, 4)))
    rises = (50 * torch.relu(steps[:, :3] @ x.T + steps[:, 3:] - 0.05)).square().mean(1)
    for seed in range(12):
        problem = Problem(model, loss, (x, y), params=["0"])
        found = AverageSharpness().read(problem, Effort(seed))
        assert abs(found.value - float(rises.mean())) <= 10 * found.stderr


def test_an_event_that_is_never_seen_is_not_excluded():
    model, loss, data = off()
    with torch.no_grad():
        model[0].bias.fill_(-5.0)
    found = AverageSharpness().read(Problem(model, loss, data, params=["0"]), Effort(0))
    assert found.value == 0 and np.isinf(found.stderr) and not found.complete
    assert "events rarer than 0.015 are not excluded" in found.method


def test_few_probes_of_two_outcomes():
    """Three equal ones of them had an error of 1e-14."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 4)))
    problem = Problem(model, nn.CrossEntropyLoss(), (x, torch.arange(30) % 2), params=["2.bias"])
    truth = float(problem.dense().trace())
    found = [
        LayerTrace(method="probes").read(problem, Effort(seed, Budget(products=3)))
        for seed in range(20)
    ]
    assert all(abs(each.value[0] - truth) <= 3 * each.stderr[0] for each in found)
    assert any(np.isinf(each.stderr[0]) for each in found)
