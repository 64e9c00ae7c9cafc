"""A loss must be a mean over examples, of finite losses, of labels it can read."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    mse_loss,
    poisson_nll_loss,
)

import flatlab as fl
from flatlab.errors import UserError
from flatlab.problem import Problem

torch.set_num_threads(1)
CE = nn.CrossEntropyLoss()
W = torch.tensor([1.0, 10.0, 0.1])


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def mlp(outputs=3):
    return seeded(lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, outputs)))


def data(n=60):
    return seeded(lambda: (torch.randn(n, 5), torch.randint(3, (n,))), 1)


def weighted(o, y):
    return cross_entropy(o, y, weight=W.to(o))


def summed(o, y):
    return cross_entropy(o, y, reduction="sum")


def coupled(o, y):
    return cross_entropy(o - o.mean(0), y)


def ignoring(o, y):
    return cross_entropy(o, y, ignore_index=2)


NO_MEAN = {
    "class weights": (nn.CrossEntropyLoss(weight=W), "class weights"),
    "class weights in a function": (weighted, "not a mean over examples"),
    "ignored labels": (nn.CrossEntropyLoss(ignore_index=0), "ignore_index=0"),
    "ignored labels in a function": (ignoring, "not a mean over examples"),
    "a sum in a function": (summed, "Divide a sum by the number of examples"),
    "coupled examples": (coupled, "not a mean over examples"),
    "weights of a fixed batch": (
        nn.BCEWithLogitsLoss(weight=torch.rand(60, 1).add(0.5)),
        "but not 30",
    ),
}


@pytest.mark.parametrize("name", NO_MEAN)
@pytest.mark.parametrize("n", [60, 300])
def test_a_loss_that_is_no_mean_over_examples_is_refused(name, n):
    loss, says = NO_MEAN[name]
    x, y = data(n)
    if isinstance(loss, nn.BCEWithLogitsLoss):
        if n != 60:
            pytest.skip("it takes one number of examples only")
        y = torch.nn.functional.one_hot(y, 3).float()
    with pytest.raises(UserError) as caught:
        Problem(mlp(), loss, (x, y))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_are_seen_where_every_batch_has_one_class():
    """Within a batch the weights cancel; between batches they do not."""
    x, y = data(300)
    x, y = x[y.argsort()], y.sort().values
    batches = [(x[y == c], y[y == c]) for c in range(3)]
    with pytest.raises(UserError, match="not a mean over examples"):
        Problem(mlp(), weighted, batches)


MEANS = {
    "label smoothing": nn.CrossEntropyLoss(label_smoothing=0.1),
    "equal weights": nn.CrossEntropyLoss(weight=torch.full((3,), 2.0)),
    "weighted examples": lambda o, y: (W.to(o)[y] * cross_entropy(o, y, reduction="none")).mean(),
    "a name": "cross_entropy",
    "an inner dtype": lambda o, y: cross_entropy(o.float(), y).to(o),
}


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_over_examples_is_taken(name):
    assert math.isfinite(Problem(mlp(), MEANS[name], data(300)).value())


def test_batchmean_is_a_mean_over_examples():
    (x, _), model = data(30), nn.Sequential(mlp(), nn.LogSoftmax(1))
    y = torch.softmax(x[:, :3], 1)
    by_hand = (y * (y.log() - model(x))).sum(1).mean()
    found = Problem(model, nn.KLDivLoss(reduction="batchmean"), (x, y)).value()
    assert found == pytest.approx(float(by_hand.detach()), rel=1e-6)  # float32


def test_weights_are_seen_in_a_network_that_fits():
    """The loss is 1e-4 at outputs of 20, where float32 has few digits."""
    x, y = torch.eye(3).repeat(40, 1), torch.arange(3).repeat(40)
    model = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.diag(torch.tensor([9.0, 10.0, 11.0])))
    with pytest.raises(UserError, match="not a mean"):
        Problem(model, lambda o, y: (W.to(o)[y] * cross_entropy(o, y, reduction="none")).sum()
                / W.to(o)[y].sum(), (x, y))  # fmt: skip
    Problem(model, CE, (x, y))


def test_batchnorm_in_training_may_couple_examples():
    model = seeded(lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    problem = Problem(model, CE, data(), mode="train", batch_size=20)
    assert problem.value() != Problem(model, CE, data(), mode="train").value()  # they are coupled


def test_a_loss_that_takes_no_single_row_is_still_compared():
    x, y = data()
    squeezed = lambda o, y: binary_cross_entropy_with_logits(o.squeeze(), y)  # noqa: E731
    problem = Problem(mlp(1), squeezed, (x, y.clamp(max=1).float()))
    assert problem.value() > 0
    with pytest.raises(UserError, match="must take one row as it takes many"):
        fl.measure(mlp(1), squeezed, (x, y.clamp(max=1).float()), "ggn_trace")


def test_an_infinite_loss_of_a_later_batch_is_named():
    x, y = seeded(lambda: (torch.randn(300, 5), torch.zeros(300, 3)), 1)
    x[200] = 3e38
    with pytest.raises(UserError, match="the loss is inf on example 200 "):
        Problem(mlp(), nn.MSELoss(), (x, y))


BAD_LOSSES = {
    "float": lambda o, y: cross_entropy(o, y).item(),
    "NoneType": lambda o, y: None,
}


@pytest.mark.parametrize("name", BAD_LOSSES)
def test_a_loss_returns_a_tensor(name):
    with pytest.raises(UserError, match=f"returned {name}, it must return a torch scalar"):
        Problem(mlp(), BAD_LOSSES[name], data())


FLAT_LOSSES = {
    "detached": lambda o, y: cross_entropy(o.detach(), y),
    "constant": lambda o, y: torch.tensor(1.0),
    "zero-one": lambda o, y: (o.argmax(1) != y).float().mean(),
}


@pytest.mark.parametrize("name", FLAT_LOSSES)
@pytest.mark.parametrize("measure", ["trace", "lambda_max", "sam_sharpness", "fisher_trace"])
def test_a_loss_without_a_gradient_is_called_so(name, measure):
    with pytest.raises(UserError, match="has no gradient in the model's outputs"):
        fl.measure(mlp(), FLAT_LOSSES[name], data(), measure)


def test_its_value_can_still_be_had():
    assert 0 < Problem(mlp(), FLAT_LOSSES["zero-one"], data()).value() <= 1


def test_parameters_that_are_not_used_are_called_so():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(5, 3), nn.Linear(5, 3)

        def forward(self, x):
            return self.used(x)

    with pytest.raises(UserError, match="no gradient in the selected parameters"):
        fl.measure(Unused(), CE, data(), "trace", params="spare")


class Language(nn.Module):
    """(N, T) tokens to (N, T, V) logits."""

    def __init__(self, words=50):
        super().__init__()
        self.table, self.head = nn.Embedding(words, 4), nn.Linear(4, words)

    def forward(self, x):
        return self.head(self.table(x))


def of_tokens(o, y):
    return cross_entropy(o.flatten(0, 1), y.flatten())


def test_a_language_model_is_measured():
    """Labels beyond the axis that is 1 are no mistake; λ_max is that of the dense Hessian."""
    tokens = seeded(lambda: torch.randint(50, (20, 9)))
    tokens[0] = 49
    problem = Problem(seeded(Language).double(), of_tokens, (tokens[:, :-1], tokens[:, 1:]))
    found = fl.measure(
        seeded(Language).double(), of_tokens, (tokens[:, :-1], tokens[:, 1:]), "lambda_max"
    )["lambda_max"]
    truth = float(torch.linalg.eigvalsh(problem.matrix().dense())[-1])
    assert found.stderr <= 1e-3 * truth  # the usual tolerance
    assert abs(found.value - truth) <= found.stderr + 1e-9


WHOLE_NUMBERS = {
    "zeros and ones": lambda o, y: binary_cross_entropy_with_logits(o[:, 0], y.clamp(max=1).to(o)),
    "counts": lambda o, y: poisson_nll_loss(o[:, 0], 7 * y),
    "squares": lambda o, y: mse_loss(o[:, 0], 7 * y.to(o)),
}


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
def test_whole_numbers_need_not_be_classes(name):
    found = fl.measure(mlp(1), WHOLE_NUMBERS[name], data(), "trace", dtype="float64")["trace"]
    dense = Problem(mlp(1), WHOLE_NUMBERS[name], data(), dtype="float64").matrix().dense()
    assert found.value == pytest.approx(float(dense.trace()), rel=1e-9)


@pytest.mark.parametrize("loss", [CE, cross_entropy, "cross_entropy"])
def test_classes_beyond_the_outputs_are_refused(loss):
    x, y = data()
    for shifted in (y + 1, y - 1):
        with pytest.raises(UserError, match="labels lie between"):
            Problem(mlp(), loss, (x, shifted))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_labels_of_other_integer_types_are_the_same_labels(dtype):
    x, y = data()
    for name in ("trace", "diagonal", "nonuniformity"):
        mine = fl.measure(mlp(), CE, (x, y.to(dtype)), name)[name].value
        assert mine == pytest.approx(fl.measure(mlp(), CE, (x, y), name)[name].value)
