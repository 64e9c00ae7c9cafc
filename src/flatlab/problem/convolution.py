"""Convolutions with a cheap second derivative.

PyTorch differentiates a convolution's backward pass through transposed convolutions with kernels as
large as the image, which are slow on a CPU. With y = w∗x, and g the gradient at y, the backward
pass is bilinear, (g, x, w) ↦ (B_x(g, w), B_w(g, x)), and its own backward pass is bilinear too: for
cotangents (v_x, v_w)

    ḡ = w∗v_x + v_w∗x,    x̄ = B_x(g, v_w),    w̄ = B_w(g, v_x),

two forward passes and one backward pass with other arguments. A Hessian product of a small VGG
takes 10 to 20 % less time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

_CONVOLUTIONS = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}


class _Shape(NamedTuple):
    """Stride, padding and the like: how a convolution moves over its input."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    def forward(self, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        made: Tensor = torch.ops.aten.convolution(
            x, w, bias, self.stride, self.padding, self.dilation, False, [0], self.groups
        )
        return made

    def backward(
        self, g: Tensor, x: Tensor, w: Tensor, wanted: list[bool]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the wanted ones of the gradients at x, w and the bias."""
        made: tuple[Tensor | None, Tensor | None, Tensor | None]
        made = torch.ops.aten.convolution_backward(
            g, x, w, [len(w)], self.stride, self.padding, self.dilation, False, [0], self.groups,
            wanted,
        )  # fmt: skip
        return made


class _Convolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, shape: _Shape) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.shape = shape
        return shape.forward(x, w, bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        wanted = list(ctx.needs_input_grad[:3])
        made = _Backward.apply(g, *ctx.saved_tensors, ctx.shape, wanted)  # type: ignore[no-untyped-call]
        return *made, None


class _Backward(Function):
    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, w: Tensor, shape: _Shape, wanted: list[bool]
    ) -> Any:
        ctx.save_for_backward(g, x, w)
        ctx.shape = shape
        ctx.set_materialize_grads(False)
        return shape.backward(g, x, w, wanted)

    @staticmethod
    def backward(ctx: Any, v_x: Tensor | None, v_w: Tensor | None, v_bias: Tensor | None) -> Any:
        g, x, w = ctx.saved_tensors
        shape: _Shape = ctx.shape
        at_g, at_x, at_w = None, None, None
        needs_g, needs_x, needs_w = ctx.needs_input_grad[:3]
        if needs_g:
            parts = [] if v_x is None else [shape.forward(v_x, w, None)]
            parts += [] if v_w is None else [shape.forward(x, v_w, None)]
            parts += [] if v_bias is None else [v_bias.view(-1, *[1] * (g.ndim - 2)).expand_as(g)]
            at_g = sum(parts[1:], parts[0]) if parts else None
        if (v_w is not None and needs_x) or (v_x is not None and needs_w):
            wanted = [v_w is not None and needs_x, v_x is not None and needs_w, False]
            at_x, at_w, _ = shape.backward(
                g, x if v_x is None else v_x, w if v_w is None else v_w, wanted
            )
        return at_g, at_x, at_w, None, None


class FastConvolutions(TorchFunctionMode):
    """While it is active, convolutions of batches on the CPU are differentiated as above."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Replace convolutions; pass every other function on to torch."""
        kwargs = kwargs or {}
        if func in _CONVOLUTIONS:
            made = _convolve(_CONVOLUTIONS[func], *args, **kwargs)
            if made is not None:
                return made
        return func(*args, **kwargs)


def _convolve(
    axes: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor | None:
    """Return the convolution, or None where torch's own is to be used.

    That is for a single image, padding by name, another device, and under autocast, which would not
    see this one.
    """
    single = input.ndim != axes + 2 or isinstance(padding, str)
    if single or input.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return None

    def each(value: Any) -> list[int]:
        return [value] * axes if isinstance(value, int) else list(value)

    shape = _Shape(each(stride), each(padding), each(dilation), groups)
    made: Tensor = _Convolution.apply(input, weight, bias, shape)  # type: ignore[no-untyped-call]
    return made
