"""Networks whose layers do not see one example a row, and functions without a second derivative."""

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable

from flatlab.errors import UserError
from flatlab.measures.measuring import measure
from flatlab.problem import Problem

N = 6


class Tokens(nn.Module):
    """A mean over six tokens, written in one of several ways."""

    def __init__(self, way):
        super().__init__()
        self.way, self.one, self.two = way, nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("constant", torch.linspace(-1, 1, 3 * N).view(N, 3))

    def forward(self, x):
        if self.way == "positions first":
            hidden = torch.relu(self.one(x.transpose(0, 1))).mean(0)
        elif self.way == "one axis":
            hidden = torch.relu(self.one(x.reshape(-1, 3))).view(len(x), -1, 4).mean(1)
        else:
            hidden = torch.relu(self.one(self.constant)).mean(0) * x.mean((1, 2))[:, None]
        return self.two(hidden)


@pytest.mark.parametrize("way", ["positions first", "one axis", "a constant"])
def test_traces_are_right_where_rows_are_no_examples(way):
    torch.manual_seed(0)
    model, x = Tokens(way).double(), torch.randn(N, 6, 3, dtype=torch.float64)
    y, loss = torch.arange(N) % 2, nn.CrossEntropyLoss()
    dense = Problem(model, loss, (x, y)).matrix("ggn").dense().trace()
    for name in ("trace", "ggn_trace"):
        reading = measure(model, loss, (x, y), [name])[name]
        assert reading.exact
        assert float(reading.value) == pytest.approx(float(dense), rel=1e-10)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]


class Squared(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return Square.apply(self.linear(x))


@pytest.mark.parametrize("loss", [nn.MSELoss(), lambda f, y: f.mean()])
@pytest.mark.parametrize("name", ["trace", "lambda_max", "frobenius"])
def test_a_function_to_be_differentiated_once_is_refused(name, loss):
    model, x = Squared().double(), torch.randn(10, 3, dtype=torch.float64)
    with pytest.raises(UserError, match="SquareBackward is marked once_differentiable"):
        measure(model, loss, (x, torch.zeros(10, 2, dtype=torch.float64)), [name])
