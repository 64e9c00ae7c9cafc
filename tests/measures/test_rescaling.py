"""The rescaling leaves the function alone, and every measure does what it says under it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import flatlab as fl
from cases import CASES
from flatlab.errors import UserError
from flatlab.measures import CATALOGUE
from flatlab.measures.measuring import invariance
from flatlab.measures.rescaling import rescale


def _inputs(name):
    _, _, data = CASES[name].make()
    if isinstance(data, fl.data.Dataset):
        return torch.tensor(data.x_train)
    return data[0]


PRESERVED = [
    "relu", "relu without bias", "convolution", "frozen", "two-layer", "simplified batchnorm",
    "batchnorm, eval",
]  # fmt: skip


@pytest.mark.parametrize("alpha", [0.3, 2.0, 10])
@pytest.mark.parametrize("name", PRESERVED)
def test_the_function_stays_and_the_parameters_move(name, alpha):
    model = CASES[name].make()[0].eval()
    x = _inputs(name)
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    made = rescale(model, alpha)
    with torch.no_grad():
        truth, found = model(x), made(x)
    assert torch.allclose(found, truth, rtol=1e-12, atol=1e-12)
    moved = [k for k, p in made.named_parameters() if not torch.equal(p, before[k])]
    assert len(moved) >= 2
    assert all(torch.equal(p, before[key]) for key, p in model.named_parameters())


def _chain():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU()), nn.Linear(4, 2)
    ).double()


def test_what_is_multiplied():
    with torch.random.fork_rng(devices=[]):
        model = _chain()
    made = rescale(model, 2.0, layers=["2.0"])
    assert torch.equal(made[0].weight, model[0].weight)
    assert torch.equal(made[2][0].weight, 2 * model[2][0].weight)
    assert torch.equal(made[2][0].bias, 2 * model[2][0].bias)
    assert torch.equal(made[3].weight, model[3].weight / 2)
    assert torch.equal(made[3].bias, model[3].bias)
    both = rescale(model, 2.0)
    assert torch.equal(both[0].weight, 2 * model[0].weight)
    assert torch.equal(both[2][0].weight, model[2][0].weight)
    assert torch.equal(both[2][0].bias, 2 * model[2][0].bias)


class Parts(nn.Module):
    """Sequentials as attributes, as image models have them; a batch norm stands in the first."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 2))

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def test_sequentials_inside_a_model():
    model = Parts().double().eval()
    x = torch.randn(5, 1, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    made = rescale(model, 3.0)
    assert torch.allclose(made(x), model(x), rtol=1e-12, atol=1e-12)
    assert torch.equal(made.head[0].weight, 3 * model.head[0].weight)
    assert torch.equal(made.features[0].weight, model.features[0].weight)


def test_deep_networks():
    arch = fl.models.Deep(width=4, depth=4)
    data = fl.data.xor(d=5, n=8, seed=1, n_test=4)
    params = {k: v.astype("float64") for k, v in arch.initial(data.d, 0).items()}
    model = fl.models.build(arch, params, data.x_train)
    x = torch.tensor(data.x_train).double()
    made = rescale(model, 5.0, layers="W2")
    assert torch.allclose(made(x), model(x), rtol=1e-12, atol=1e-14)
    assert torch.equal(made.W2, 5 * model.W2)
    assert torch.equal(made.W3, model.W3 / 5)


def _tied():
    first = nn.Linear(3, 3)
    return nn.Sequential(first, nn.ReLU(), first)


NOTHING = {
    "one layer": lambda: nn.Linear(3, 2),
    "smooth": lambda: nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)),
    "relu6": lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU6(), nn.Linear(3, 1)),
    "normalised": lambda: nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 1)),
    "one layer twice": _tied,
    "simplified layernorm": lambda: CASES["simplified layernorm"].make()[0],
    "attention": lambda: CASES["attention"].make()[0],
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_to_rescale(name):
    with pytest.raises(UserError, match="nothing to rescale"):
        rescale(NOTHING[name](), 2.0)


@pytest.mark.parametrize("alpha", [0, -1.0, float("nan"), float("inf"), "2", True, None])
def test_alpha_is_a_positive_number(alpha):
    with pytest.raises(UserError, match="alpha must be"):
        rescale(_chain(), alpha)


def test_an_unknown_layer():
    with pytest.raises(UserError, match="unknown layer to rescale '1'"):
        rescale(_chain(), 2.0, layers=["1"])


@pytest.mark.parametrize("layers", [3, [3], [None], 2.5])
def test_layers_are_names(layers):
    with pytest.raises(UserError, match=r"layers must be names such as \['0'\]"):
        rescale(_chain(), 2.0, layers)


@pytest.mark.parametrize("alpha", [1e39, 1e-39, 1e-310])
def test_weights_stay_in_the_range_of_their_dtype(alpha):
    with pytest.raises(UserError, match=r"out of the range of torch\.float32"):
        rescale(_chain().float(), alpha)


def test_a_module_that_may_compute_something_else_is_refused():
    hooked, replaced = _chain(), _chain()
    hooked[2].register_forward_hook(lambda module, given, out: out + 1)
    replaced[1].forward = torch.tanh
    with pytest.raises(UserError, match="the module 2 has a forward hook"):
        rescale(hooked, 2.0)
    with pytest.raises(UserError, match="the module 1 has a forward of its own"):
        rescale(replaced, 2.0)
    seen = _chain()
    seen.register_forward_hook(lambda module, given, out: out + 1)  # outside what is rescaled
    x = torch.ones(2, 3).double()
    assert torch.allclose(rescale(seen, 2.0)(x), seen(x), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_a_model_that_torch_cannot_copy():
    model = _chain()
    nn.utils.weight_norm(model[0])
    with pytest.raises(UserError, match=r"cannot be copied: 0\.weight is computed"):
        rescale(model, 2.0)


# Densities on a grid are compared by their norm and have wide errors: left to their own tests.
# Each of the others must do what its description says. A two-layer network serves them all.
# Two measures need more than the model: a start, and an optimizer.
GIVEN = ("distance", "preconditioned_lambda_max")
TRIED = [name for name in CATALOGUE if "spectrum" not in name and name not in GIVEN]


@pytest.mark.parametrize("name", TRIED)
def test_measures_move_as_they_say(name):
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(20, 4, generator=draw, dtype=torch.float64)
    y = torch.randint(0, 3, (20,), generator=draw)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    (each,) = invariance(model, "cross_entropy", (x, y), [name], alpha=8.0)
    assert each.declared in ("invariant", "moves")
    assert each.moved == (each.declared == "moves")
    if not each.moved:
        assert each.after == pytest.approx(each.before, rel=1e-8)
