"""The measuring call: what it leaves alone, what it refuses, what it returns, and the tracker."""

from __future__ import annotations

import copy
import json
import math
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import flatlab as fl
from flatlab.errors import UserError
from flatlab.measures import CATALOGUE, Effort
from flatlab.measures.explaining import explanation
from flatlab.measures.trace import Frobenius, LayerTrace, Trace
from flatlab.problem import Problem


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return make()


def network(*extra):
    return seeded(
        lambda: nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), *extra, nn.Linear(8, 3)
        )
    )


def data(n=24):
    return seeded(lambda: (torch.randn(n, 4), torch.randint(0, 3, (n,))))


CE = nn.CrossEntropyLoss()


def each_loss(outputs, y):
    return nn.functional.cross_entropy(outputs, y, reduction="none")


def state_of(model):
    """Return everything about a model that measuring could disturb."""
    return {
        "tensors": {k: v.clone() for k, v in model.state_dict().items()},
        "training": [m.training for m in model.modules()],
        "wanted": [p.requires_grad for p in model.parameters()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "hooks": [len(m._forward_hooks) + len(m._backward_hooks) for m in model.modules()],
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state()[1].copy(),
        "python": random.getstate(),
    }


def same(a, b):
    if isinstance(a, torch.Tensor | np.ndarray):
        return type(a) is type(b) and bool((a == b).all())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


UNNORMALISED = {"weighted_norm", "path_norm"}  # measures that take no BatchNorm
OF_AN_OPTIMIZER = {"preconditioned_lambda_max"}  # none is given
# Measures of single examples, which BatchNorm mixes in mode="train".
EACH_EXAMPLE = {
    "alignment", "batch_sharpness", "fisher_rao", "input_gradient", "nonuniformity",
    "second_moment_radius",
}  # fmt: skip


@pytest.mark.parametrize("mode", ["eval", "train", "recomputed"])
def test_the_model_is_found_again_as_it_was(mode):
    model, (x, y) = network(nn.Dropout(0.0)), data()
    model.train()
    model[0].weight.requires_grad_(False)
    CE(model(x), y).backward()
    before, start = state_of(model), copy.deepcopy(model.state_dict())
    loader = DataLoader(TensorDataset(x, y), batch_size=7, shuffle=True)
    readings = fl.measure(
        model,
        CE,
        loader,
        "all",
        mode=mode,
        budget=fl.Budget(products=8),
        skip=True,
        reference=start,
    )
    mixed = EACH_EXAMPLE if mode == "train" else set()
    assert set(readings.skipped) == UNNORMALISED | OF_AN_OPTIMIZER | mixed
    assert len(readings) > 25
    assert same(before, state_of(model))


MISTAKES = {
    "dropout": (
        lambda: fl.measure(network(nn.Dropout(0.5)), CE, data(), mode="train"),
        "the model is not deterministic",
    ),
    "a loader that augments": (
        lambda: fl.measure(network(), CE, Augmented()),
        "gives other examples on a second pass",
    ),
    "a vector of losses": (
        lambda: fl.measure(network(), each_loss, data()),
        "it must be a scalar mean",
    ),
    "a sum": (
        lambda: fl.measure(network(), nn.CrossEntropyLoss(reduction="sum"), data()),
        "reduction='sum'",
    ),
    "NaN parameters": (lambda: fl.measure(broken(), CE, data()), "0.weight holds NaN"),
    "NaN inputs": (
        lambda: fl.measure(network(), CE, (torch.full((4, 4), math.nan), torch.zeros(4).long())),
        "x holds NaN",
    ),
    "empty data": (
        lambda: fl.measure(network(), CE, (torch.zeros(0, 4), torch.zeros(0).long())), "is empty"),
    "an empty loader": (lambda: fl.measure(network(), CE, []), "is empty"),
    "labels out of range": (
        lambda: fl.measure(network(), CE, (torch.ones(4, 4), torch.full((4,), 3))),
        "labels lie between 3 and 3, the model has outputs 0 to 2: number the classes",
    ),
    "an unknown measure": (
        lambda: fl.measure(network(), CE, data(), "lamda_max"), "did you mean 'lambda_max'"),
    "an unknown option": (
        lambda: fl.measure(network(), CE, data(), "lambda_max:tol=1"), "tol"),
    "a pattern that matches nothing": (
        lambda: fl.measure(network(), CE, data(), params="layer1.*"), "'layer1.*' matches nothing"),
    "shapes that broadcast": (
        lambda: fl.measure(nn.Linear(4, 1), nn.MSELoss(), (torch.ones(5, 4), torch.ones(5))),
        "the loss MSELoss failed on outputs (5, 1) and labels (5,)",
    ),
    "x and y of different length": (
        lambda: fl.measure(network(), CE, (torch.ones(5, 4), torch.zeros(4).long())),
        "one row for each example",
    ),
    "inputs of another width": (
        lambda: fl.measure(network(), CE, (torch.ones(5, 3), torch.zeros(5).long())),
        "the model failed on a batch of shape (5, 3)",
    ),
    "a mode": (lambda: fl.measure(network(), CE, data(), mode="test"), "unknown mode 'test'"),
    "a dtype": (lambda: fl.measure(network(), CE, data(), dtype="float16"), "dtype must be"),
    "a budget": (lambda: fl.measure(network(), CE, data(), budget=-1), "seconds must be > 0"),
    "no model": (lambda: fl.measure("vgg", CE, data()), "model must be a torch.nn.Module"),
    "no measure": (lambda: fl.measure(network(), CE, data(), []), "measures is empty"),
    "everything frozen": (
        lambda: fl.measure(network().requires_grad_(False), CE, data()), "no trainable parameter"),
    "no second derivative": (
        lambda: fl.measure(Flash(), CE, (torch.ones(4, 3, 8), torch.zeros(4).long()), "lambda_max"),
        "no second derivative: replace",
    ),
    "a mapping to a number": (
        lambda: fl.measure(network(), CE, data(), {"a": 3}), "a name or a measure, got 3"),
    "a mapping from a number": (
        lambda: fl.measure(network(), CE, data(), {3: "trace"}), "needs names, got 3"),
    "an empty mapping": (lambda: fl.measure(network(), CE, data(), {}), "measures is empty"),
    "a class": (lambda: fl.measure(network(), CE, data(), Trace), "write Trace()"),
    "a class in a mapping": (
        lambda: fl.measure(network(), CE, data(), {"a": Trace}), "write Trace()"),
    "a budget in a string": (
        lambda: fl.measure(network(), CE, data(), budget="10"), "must be a number, got '10'"),
    "a budget that is true": (
        lambda: fl.measure(network(), CE, data(), budget=True), "must be a number, got True"),
    "half a product": (lambda: fl.Budget(products=2.5), "a whole number, got 2.5"),
    "a reference of NaN": (
        lambda: fl.measure(network(), CE, data(), "distance", reference=broken().state_dict()),
        "reference holds NaN",
    ),
    "a model as reference": (
        lambda: fl.measure(network(), CE, data(), "distance", reference=network()),
        "by name, got Sequential: pass a state_dict",
    ),
    "a reference without tensors": (
        lambda: fl.measure(network(), CE, data(), "distance", reference={"0.weight": "a"}),
        "reference must have tensors",
    ),
    "a number explained": (lambda: fl.explain(3), "named by a string such as 'trace', got 3"),
    **{
        f"the seed {seed!r}": (
            lambda seed=seed: fl.measure(network(), CE, data(), seed=seed),
            f"seed must be a whole number, got {seed!r}",
        )
        for seed in ("a", None, 1.5, True)
    },
    "a negative seed": (lambda: fl.measure(network(), CE, data(), seed=-1), "seed must be >= 0"),
    "skip no": (
        lambda: fl.measure(network(), CE, data(), skip="no"), "skip must be True or False, got"),
    "a tracker's skip": (lambda: fl.Tracker(skip=None), "skip must be True or False, got None"),
    "every": (lambda: fl.Tracker(every=0), "every must be >= 1"),
    "every one and a half": (lambda: fl.Tracker(every=1.5), "every must be a whole number"),
    "a tracker's seed": (lambda: fl.Tracker(seed="a"), "seed must be a whole number"),
    "a tracker's budget": (lambda: fl.Tracker(budget="3"), "must be a number, got '3'"),
    "a tracker's step": (
        lambda: fl.Tracker(loss=CE, data=data())(network(), "a"), "step must be a whole number"),
    "a generator for a tracker": (
        lambda: fl.Tracker(loss=CE, data=(batch for batch in [data()])),
        "can be read only once: pass a DataLoader",
    ),
    "a tracker without data": (lambda: fl.Tracker()(network(), 0), "needs loss= and data="),
}  # fmt: skip


class Augmented:
    """A loader whose pictures change at every pass."""

    def __init__(self):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        x, y = data()
        yield x + 0.1 * self.passes, y


class Flash(nn.Module):
    """Calls a fused attention kernel by name; it has no second derivative."""

    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, 3)

    def forward(self, x):
        q, k, v = (part[:, None] for part in self.qkv(x).chunk(3, -1))
        mixed = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0]
        return self.head(mixed[:, 0].mean(1))


def broken():
    model = network()
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan
    return model


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_clear_line(name):
    call, says = MISTAKES[name]
    with pytest.raises(UserError) as caught:
        call()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_readings_print_and_export():
    readings = fl.measure(network(), CE, data(), ["trace", "top_k:k=2", "layer_trace"])
    text = str(readings)
    assert text.splitlines()[0].split() == ["measure", "value", "method", "products", "seconds"]
    assert "24 examples" in text and "eval mode" in text and "float32" in text
    assert str(readings["trace"]).startswith("Tr = ")
    document = json.loads(readings.to_json())
    assert document["trace"]["card"]["examples"] == 24
    assert document["top_k:k=2"]["card"]["settings"]["k"] == 2
    table = readings.to_pandas()
    assert list(table["measure"]) == ["trace"] + ["top_k:k=2"] * 2 + ["layer_trace"] * 3
    assert (table["low"] <= table["value"]).all() and (table["value"] <= table["high"]).all()


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_budget_returns_the_best_so_far(name):
    model = network()
    if name in UNNORMALISED:
        del model[1]
    start = {part: 2 * value for part, value in model.state_dict().items()}
    (reading,) = fl.measure(
        model, CE, data(), name, budget=fl.Budget(products=3), dtype="float64", reference=start,
        preconditioner={part: torch.full_like(p, 2.0) for part, p in model.named_parameters()},
    ).values()  # fmt: skip
    assert np.isfinite(reading.value).all()
    # After one product nothing bounds the error of an eigenvalue: then it is infinite.
    assert not np.isnan(reading.stderr).any()


def test_a_spent_budget_says_so_and_its_error_is_honest():
    x, y = seeded(lambda: (torch.randn(30, 6).double(), torch.randint(0, 3, (30,))))
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)).double())
    full = fl.measure(model, CE, (x, y), "lambda_max")["lambda_max"]
    cut = fl.measure(model, CE, (x, y), "lambda_max", budget=fl.Budget(products=20))["lambda_max"]
    assert not cut.complete and "stopped early: the budget of 20 products was spent" in str(cut)
    assert abs(cut.value - full.value) <= cut.stderr <= 0.5 * full.value


@pytest.mark.slow
@pytest.mark.parametrize(
    "measure",
    [
        Trace(method="probes", tolerance=0.05),
        Frobenius(method="probes", tolerance=0.02),
        LayerTrace(method="probes", tolerance=0.1),
    ],
)
def test_intervals_cover_the_truth(measure):
    """95 % intervals over 200 seeds cover between 90 and 99 % (binomial: ±3 % is two sigma)."""
    x, y = seeded(lambda: (torch.randn(20, 4).double(), torch.randint(0, 3, (20,))))
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3)).double())
    problem = Problem(model, CE, (x, y))
    H = problem.matrix().dense()
    whole = Matrix(H)
    problem.matrix = lambda kind="hessian": whole  # the same matrix, quicker
    diagonal = H.diagonal()
    truth = {
        Trace: np.array([float(H.trace())]),
        Frobenius: np.array([float(H.norm())]),
        LayerTrace: np.array([float(diagonal[part].sum()) for part in problem.layers.values()]),
    }[type(measure)]
    hits = []
    for seed in range(200):
        outcome = measure.read(problem, Effort(seed))
        from scipy.stats import t

        wide = t.ppf(0.975, outcome.dof) * np.atleast_1d(outcome.stderr)
        hits.append(np.abs(np.atleast_1d(outcome.value) - truth) <= wide)
    assert 0.90 <= np.mean(hits) <= 0.99


class Matrix:
    """A whole matrix in the place of one known by its products."""

    def __init__(self, whole):
        self.whole, self.size, self.products = whole, len(whole), 0

    def __matmul__(self, v):
        self.products += 1 if v.ndim == 1 else v.shape[1]
        return self.whole @ v


def test_the_tracker_follows_a_loop():
    model, (x, y) = network(), data(60)
    tracker = fl.Tracker(["lambda_max", "trace"], every=2, loss=CE, data=(x, y))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5):
        tracker(model, step)
        optimizer.zero_grad()
        CE(model(x), y).backward()
        optimizer.step()
    assert list(tracker.history["step"]) == [0, 2, 4]
    assert list(tracker.history) == [
        "step",
        "lambda_max",
        "lambda_max_stderr",
        "trace",
        "trace_stderr",
    ]
    now = fl.measure(model, CE, (x, y), "lambda_max")
    tracker(model, 6)
    assert tracker.history["lambda_max"].iloc[-1] == now["lambda_max"].value


def test_the_tracker_follows_training():
    tracker = fl.Tracker(["trace", "ggn_trace"], every=2, dtype="float64")
    xor = fl.data.xor(d=6, n=20, seed=0, n_test=10)
    run = fl.train(
        fl.models.TwoLayer(width=10), xor, dtype="float64", track=tracker,
        schedule=[fl.Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=8)],
    )  # fmt: skip
    followed = tracker.history.set_index("step")
    logged = run.history.set_index("epoch")
    assert set(followed.index) == {e for e in logged.index if e % 2 == 0}
    # The closed form of the engine and the exact trace of a measure are the same number.
    for epoch, row in followed.iterrows():
        assert row["trace"] == pytest.approx(logged["trace"][epoch], rel=1e-9)
        assert row["ggn_trace"] == pytest.approx(logged["trace_ggn"][epoch], rel=1e-9)


def test_rescaling_a_model_that_is_no_chain_is_refused():
    class Odd(nn.Sequential):
        def forward(self, x):
            return self[2](torch.tanh(self[0](x)))

    chain = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))
    found = fl.invariance(chain, CE, data(), ["trace", "path_norm"], dtype="float64")
    assert {each.name: each.moved for each in found} == {"trace": True, "path_norm": False}

    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = copy.deepcopy(chain)

        def forward(self, x):
            return self.layers[2](torch.tanh(self.layers[0](x)))

    with pytest.raises(UserError, match="rescaling changes the outputs"):
        fl.invariance(Parts(), CE, data(), ["trace"])


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_measure_is_explained(name):
    text = explanation(name)
    for part in ("what", "formula", "ReLU rescaling", "cost", "what it is not"):
        assert part in text
    assert CATALOGUE[name].about.relu in ("invariant", "moves")


def test_an_unknown_measure_is_not_explained():
    with pytest.raises(UserError, match="did you mean 'trace'"):
        fl.explain("trase")


class Missing(nn.Module):
    """A model whose code is wrong."""

    def forward(self, x):
        return self.nowhere(x)


class Lost(torch.utils.data.Dataset):
    """A dataset whose files are gone."""

    def __len__(self):
        return 3

    def __getitem__(self, i):
        raise FileNotFoundError("image3.png")


RELU = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def _no_key(outputs, y):
    return {}["weights"]


@pytest.mark.parametrize(
    ("model", "loss", "given", "says"),
    [
        (Missing, CE, None, "the model failed on a batch of shape .* AttributeError: .*nowhere"),
        (None, _no_key, None, "the loss _no_key failed on .* KeyError: 'weights'"),
        (None, CE, Lost(), "the data .Lost. failed: FileNotFoundError: image3.png .in .*line"),
        (None, CE, torch.utils.data.DataLoader(Lost()), "the data .DataLoader. failed: .*image3"),
        (None, CE, "three", "data must be .*, got tuple of 3"),
        (None, CE, {"x": 1}, "data must be .*, got dict"),
    ],
)
def test_mistakes_in_the_users_own_code_are_said(model, loss, given, says):
    x, y = data(20)
    given = (x, y, y) if given == "three" else (x, y) if given is None else given
    made = network() if model is None else model()
    if model is not None:
        made.weight = nn.Parameter(torch.ones(1))
    with pytest.raises(UserError, match=says):
        fl.measure(made, loss, given, "trace")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "bogus"}, "mode"),
        ({"params": "nope"}, "nope"),
        ({"budget": -1}, "budget"),
        ({"measures": ["distance", "trace"]}, "reference"),
    ],
)
def test_invariance_says_what_is_wrong(options, says):
    with pytest.raises(UserError, match=says):
        fl.invariance(RELU, CE, data(20), **{"measures": ["trace"], **options})
    with pytest.raises(UserError, match="read only once"):
        fl.invariance(RELU, CE, iter([data(20)]), ["trace"])


def test_a_tracker_counts_from_zero():
    with pytest.raises(UserError, match="step must be >= 0, got -1"):
        fl.Tracker("trace", loss=CE, data=data(20))(network(), -1)


def test_a_prefixed_name_keeps_its_matrix():
    with pytest.raises(UserError, match="got matrix=ggn: write trace:matrix=ggn"):
        fl.measure(network(), CE, data(), "fisher_trace:matrix=ggn")
    assert "fisher_trace:matrix=fisher" in fl.measure(
        network(), CE, data(), "fisher_trace:matrix=fisher"
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [("distance", "parameters to measure from"), ("preconditioned_lambda_max", "no precond")],
)
def test_what_a_measure_needs_is_checked_before_anything_is_measured(name, says, monkeypatch):
    def read(self, problem, effort):
        raise AssertionError("measured")

    monkeypatch.setattr(Trace, "read", read)
    with pytest.raises(UserError, match=says):
        fl.measure(network(), CE, data(), ["trace", name])


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"mode": "x"}, "unknown mode 'x'"),
        ({"dtype": "x"}, "dtype must be"),
        ({"reference": 3}, "reference must be parameters by name"),
    ],
)
def test_a_tracker_is_checked_when_it_is_made(option, says):
    with pytest.raises(UserError, match=says):
        fl.Tracker(**option)


def test_a_report_takes_one_argument():
    with pytest.raises(UserError, match="report must be a function of one argument"):
        fl.measure(network(), CE, "not looked at yet", report=lambda: None)
