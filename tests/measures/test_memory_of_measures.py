"""Memory: what does not fit is refused in one line before it starts, and nothing stays behind."""

from __future__ import annotations

import gc
import sys

import pytest
import torch

import flatlab as fl
from flatlab.errors import UserError
from flatlab.outside import memory

MIB = 2**20


@pytest.fixture
def free(monkeypatch):
    """Return a function that sets the free memory in MiB."""

    def call(mebibytes):
        monkeypatch.setattr(memory, "free_memory", lambda: int(mebibytes * MIB))

    return call


def wide(width):
    """A network of 22 · width + 1 parameters and 32 examples; it keeps 8 · width bytes of each."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(20, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)
    )
    return net, torch.nn.MSELoss(), (torch.randn(32, 20), torch.randn(32, 1))


@pytest.mark.parametrize(
    ("width", "mebibytes", "measures", "said", "remedy"),
    [
        # 2.2e6 parameters of 4 bytes: a copy and a vector take 16.8 MiB.
        (100_000, 16, "parameter_norm", r"a copy of the model, 2\.2e\+06 numbers", "smaller model"),
        # The hidden layer of 32 examples takes 1.2 MiB, the graph of the gradient three times that.
        (10_000, 2.5, "frobenius", "the graph of the gradient of a batch", "smaller batch_size"),
        # 24 bytes for each of 2201² entries are 110.9 MiB.
        (100, 110, "lambda_max:method=dense", "a whole matrix of 2,201 by 2,201", "method"),
        # 2 · 20 vectors of 22,001 float64 numbers are 6.7 MiB, 2 · 40 of them 13.4.
        (1000, 6, "lambda_max", r"a Krylov space of 20 vectors of 2\.2e\+04", "max_products"),
        (1000, 13, "spectrum", "a Krylov space of 40 vectors", "number of steps"),
        (1000, 40, "keskar_subspace", "a random subspace of 100 vectors", "smaller dimension"),
        (1000, 3.5, "frobenius", "a sketch of 16 vectors", "params="),
    ],
)
def test_a_measure_that_does_not_fit_is_one_line(free, width, mebibytes, measures, said, remedy):
    model, loss, data = wide(width)
    free(mebibytes)
    with pytest.raises(UserError, match=rf"{said}.* GiB of memory and .* free here: .*{remedy}"):
        fl.measure(model, loss, data, measures, progress=False)
    if "copy" not in said:
        readings = fl.measure(model, loss, data, measures, progress=False, skip=True)
        assert not readings and list(readings.skipped) == [measures]


def test_a_batch_whose_activations_do_not_fit_is_refused_and_a_smaller_one_is_not(free):
    """An example keeps 100,000 float32 numbers behind the ReLU, so 1000 of them 381 MiB."""
    net = torch.nn.Sequential(torch.nn.Linear(1, 100_000), torch.nn.ReLU(), torch.nn.Flatten())
    net.append(torch.nn.AvgPool1d(100_000))
    data = (torch.randn(1000, 1), torch.randn(1000, 1))
    free(300)
    said = r"a pass over a batch of 1000 examples \(0\.\d+ MiB of activations each\)"
    with pytest.raises(UserError, match=f"{said}.*: give fewer examples or a smaller batch_size"):
        fl.measure(net, "mse", data, "parameter_norm", mode="train", progress=False)
    found = fl.measure(net, "mse", data, "parameter_norm", batch_size=10, progress=False)
    assert found["parameter_norm"].exact


def test_data_in_another_precision_count(free):
    net, data = torch.nn.Linear(1000, 1).double(), (torch.zeros(2000, 1000), torch.zeros(2000, 1))
    free(15)
    with pytest.raises(UserError, match=r"a copy of the data in float64 needs .*: give fewer"):
        fl.measure(net, "mse", data, "parameter_norm", progress=False)


def test_small_limits_and_budgets_need_fewer_vectors(free):
    model, loss, data = wide(1000)
    free(6)
    for text, budget in (("lambda_max:max_products=5", None), ("lambda_max", 5)):
        limit = budget and fl.Budget(products=budget)
        found = fl.measure(model, loss, data, text, budget=limit, progress=False)
        assert found[text].stopped


def test_a_float64_copy_that_does_not_fit_is_left_out(free):
    """The measure goes on in float32, as it does for models that do not run in float64."""
    problem = fl.Problem(*wide(100_000))
    free(20)
    assert problem.precise is problem
    del vars(problem)["precise"]
    free(1000)
    assert problem.precise.dtype == torch.float64


def test_counting_activations_leaves_statistics_alone():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout())
    before = {name: value.clone() for name, value in net.state_dict().items()}
    problem = fl.Problem(net, "mse", (torch.randn(9, 3), torch.randn(9, 4)))
    for name, value in problem.model.state_dict().items():
        assert torch.equal(value, before[name])
    assert problem.activations.each > 0


def test_the_command_refuses_in_one_line(free, main, tmp_path, monkeypatch):
    (tmp_path / "mine_wide.py").write_text(
        "import torch\n\n\ndef make():\n"
        "    net = torch.nn.Linear(1_000_000, 1)\n"
        "    return net, torch.nn.MSELoss(), (torch.zeros(2, 1_000_000), torch.zeros(2, 1))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine_wide", raising=False)
    free(7)
    code, _, err = main("measure", "mine_wide.py:make", "--measure", "trace")
    assert code == 2 and err.count("\n") == 1 and "a copy of the model" in err


def living():
    """Return how many tensors are alive."""
    gc.collect()
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


@pytest.mark.parametrize("measure", [*fl.measures.CATALOGUE, "trace:method=probes"])
def test_a_measurement_leaves_no_tensor_behind(measure):
    """A saved output that keeps its graph would make a cycle, which is never freed."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    start = {name: each.clone() + 1 for name, each in net.state_dict().items()}
    data, found = (torch.randn(9, 6), torch.randint(2, (9,))), []
    for _ in range(2):  # the first one loads what is kept
        fl.measure(net, "cross_entropy", data, measure, skip=True, reference=start, progress=False)
        found.append(living())
    assert found[0] == found[1]
