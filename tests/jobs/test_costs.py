"""Estimates of seconds: what they depend on, and how finished runs correct them. None is timed."""

import dataclasses

import pytest

from flatlab.experiments import CATALOGUE
from flatlab.experiments.contract import Planned
from flatlab.jobs import costs
from flatlab.jobs.costs import CostModel, dimensions, estimate, kind_of
from flatlab.losses import Loss
from flatlab.models import CNN, Deep, TwoLayer
from flatlab.training.config import RunConfig
from flatlab.training.schedule import LogGrid, Phase

DATA = {"name": "xor", "d": 30, "n": 100, "seed": 0}


def config(arch=None, epochs=20_000, batch_size=1, algorithm="sam", loss="mse", **fields):
    rho = 0.05 if algorithm == "sam" else 0.0
    noise = 0.3 if algorithm == "label_noise" else 0.0
    phase = Phase(algorithm, 0.01, epochs, batch_size, rho=rho, noise=noise)
    return RunConfig(arch or TwoLayer(), DATA, (phase,), loss=Loss(loss), **fields)


@pytest.mark.parametrize(
    "made, kind",
    [
        (config(), "plain, one example"),
        (config(batch_size=None), "plain, a batch"),
        (config(TwoLayer(norm="layer")), "layer norm, one example"),
        (config(TwoLayer(norm="layer"), batch_size=10), "plain, a batch"),
        (config(TwoLayer(activation="softplus")), "softplus, one example"),
        (config(TwoLayer(activation="tanh"), batch_size=10), "tanh, a batch"),
        (config(TwoLayer(norm="batch")), "batch norm"),
        (config(Deep()), "deep, one example"),
        (config(Deep(), batch_size=None), "deep, a batch"),
        (config(loss="truncated_mse"), "torch"),
    ],
)
def test_kinds_are_those_of_the_engines_kernels(made, kind):
    assert kind_of(made, made.schedule[0]) == kind
    assert estimate(made).kind == kind
    assert estimate(made).seconds > 0


def test_what_the_batch_kernel_takes_one_by_one_is_a_kind_of_its_own():
    made = config()
    for fields in ({"momentum": 0.9}, {"second_batch": "other"}):
        phase = dataclasses.replace(made.schedule[0], **fields)
        assert kind_of(made, phase) == "a batch of one example"
        longer = estimate(dataclasses.replace(made, schedule=(phase,))).seconds
        assert longer > 2 * estimate(made).seconds  # a pass over the weights for each example


def test_training_is_proportional_to_epochs():
    silent = LogGrid(per_decade=0, regular=1)  # the first and the last epoch only
    once, twice = (estimate(config(epochs=n, log=silent)).seconds for n in (1000, 2000))
    rows = 2 * estimate(config(epochs=1, log=silent)).seconds  # an upper bound of what is logged
    assert once < twice <= 2 * once
    assert twice >= 2 * once - rows


def test_an_update_costs_its_gradients():
    seconds = {
        name: estimate(config(algorithm=name, loss="truncated_mse")).seconds
        for name in ("sgd", "label_noise", "sam", "asam", "gsam", "msam", "look_sam")
    }
    assert seconds["sgd"] == seconds["label_noise"] < seconds["look_sam"] < seconds["sam"]
    assert seconds["sam"] == seconds["asam"] == seconds["gsam"] == seconds["msam"]


def test_the_weights_of_a_torch_network_are_those_on_the_shape_its_data_says():
    arch, schedule = CNN(), config().schedule
    for data, shape in (
        ({"name": "cifar10", "n": 100}, (3, 32, 32)),
        ({"name": "fashion_mnist", "n": 100, "size": 14}, (1, 14, 14)),
    ):
        made = RunConfig(arch, data, schedule, loss=Loss("cross_entropy"))
        assert dimensions(made)[0] == arch.size(shape, 10)
    unknown = RunConfig(arch, {"name": "file", "path": "a.npz"}, schedule)
    assert dimensions(unknown)[0] == 0


def test_phases_add_up_and_the_dearest_names_the_kind():
    cheap, dear = config(batch_size=None, epochs=10), config(epochs=100_000)
    both = dataclasses.replace(cheap, schedule=(*cheap.schedule, *dear.schedule))
    assert estimate(both).kind == "plain, one example"
    assert estimate(both).seconds > estimate(dear).seconds


def test_more_of_anything_costs_more():
    least = estimate(config()).seconds
    for more in (
        config(TwoLayer(width=1000)),
        config(Deep(depth=3)),
        config(TwoLayer(norm="batch")),
        config(dtype="float64"),
        config(loss="truncated_mse"),
    ):
        assert estimate(more).seconds > least
    assert estimate(config(Deep(depth=4))).seconds > estimate(config(Deep(depth=3))).seconds


def test_finished_runs_correct_their_kind_and_others_by_the_mean():
    plain, deep = config(), config(Deep())
    taken = [(plain, 3 * estimate(plain).seconds), (deep, 3 * estimate(deep).seconds)]
    model = CostModel.calibrated(taken)
    # Ratios of the same float64 sums.
    assert model.factors == pytest.approx(
        {"plain, one example": 3, "deep, one example": 3}, rel=1e-12
    )
    other = config(TwoLayer(norm="batch"))
    assert model.seconds(other) == pytest.approx(
        costs.START_SECONDS + 3 * estimate(other).seconds, rel=1e-12
    )
    assert CostModel().seconds(plain) == costs.START_SECONDS + estimate(plain).seconds


def test_runs_that_were_over_at_once_correct_nothing():
    short = config(epochs=1)
    assert estimate(short).seconds < costs.LEAST_SECONDS
    assert CostModel.calibrated([(short, 100.0)]) == CostModel()


@pytest.mark.parametrize("experiment", CATALOGUE.values(), ids=CATALOGUE)
def test_every_planned_run_has_an_estimate(experiment):
    for settings in experiment.presets.values():
        for p in (p for p in experiment.plan(settings) if isinstance(p, Planned)):
            assert 0 < CostModel().seconds(p.config) < float("inf")
