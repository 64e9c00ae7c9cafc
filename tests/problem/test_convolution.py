"""The second derivative of a convolution equals torch's own."""

import pytest
import torch
from torch import nn

from flatlab.problem.convolution import FastConvolutions, _convolve

SHAPES = {
    "plain": lambda: nn.Conv2d(2, 3, 3),
    "padded, strided": lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1),
    "dilated, oblong": lambda: nn.Conv2d(2, 4, (3, 2), dilation=(2, 1), padding=(1, 0)),
    "in groups, no bias": lambda: nn.Conv2d(2, 4, 3, groups=2, bias=False),
    "one axis": lambda: nn.Conv1d(2, 3, 3, padding=1),
    "three axes": lambda: nn.Conv3d(2, 3, 2),
}


def _second(module: nn.Module, x: torch.Tensor, frozen: set[str]) -> list[torch.Tensor]:
    """Return ∇⟨∇L, v⟩ for L = Σ tanh(f(x))², by x and the parameters that are not frozen."""
    for name, p in module.named_parameters():
        p.requires_grad_(name not in frozen)
    at = [p for p in [x, *module.parameters()] if p.requires_grad]
    loss = module(x).tanh().square().sum()
    first = torch.autograd.grad(loss, at, create_graph=True)
    draw = torch.Generator().manual_seed(1)
    v = [torch.randn(g.shape, generator=draw, dtype=g.dtype) for g in first]
    return list(torch.autograd.grad(first, at, v))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("by_input", [True, False])
@pytest.mark.parametrize("frozen", [set(), {"weight"}, {"bias"}], ids=["all", "no w", "no bias"])
def test_a_second_derivative_is_torchs_own(name, by_input, frozen):
    torch.manual_seed(0)
    module = SHAPES[name]().double()
    axes = module.weight.ndim - 2
    x = torch.randn(3, 2, *[7] * axes, dtype=torch.float64, requires_grad=by_input)
    if not by_input and frozen == {"weight"} and module.bias is None:
        pytest.skip("nothing is left to differentiate by")
    expected = _second(module, x, frozen)
    with FastConvolutions():
        found = _second(module, x, frozen)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("what", ["a single image", "padding by name"])
def test_some_are_left_to_torch(what):
    module = nn.Conv2d(2, 3, 3, padding="same" if what == "padding by name" else 1)
    x = torch.randn(2, 5, 5) if what == "a single image" else torch.randn(4, 2, 5, 5)
    with FastConvolutions():
        found = module(x)
    assert torch.equal(found, module(x))
    assert "_Convolution" not in type(found.grad_fn).__name__


def test_autocast_is_left_to_torch():
    """Asked, not run: bfloat16 convolutions are an illegal instruction on some machines."""
    x, w = torch.randn(4, 2, 5, 5), torch.randn(3, 2, 3, 3)
    assert _convolve(2, x, w) is not None
    with torch.autocast("cpu", torch.bfloat16):
        assert _convolve(2, x, w) is None


def test_others_are_not():
    with FastConvolutions():
        found = nn.Conv2d(2, 3, 3)(torch.randn(4, 2, 5, 5))
    assert "_Convolution" in type(found.grad_fn).__name__
