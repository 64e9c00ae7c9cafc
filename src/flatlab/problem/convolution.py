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

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

_CONVOLUTIONS = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}

# How a convolution moves over its input, as torch's own functions take it: stride, padding,
# dilation, whether it is transposed, output padding, groups.
Geometry = tuple[list[int], list[int], list[int], bool, list[int], int]
convolution: Any = torch.ops.aten.convolution
convolution_backward: Any = torch.ops.aten.convolution_backward


class _Convolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, place: Geometry) -> Any:
        ctx.save_for_backward(x, w)
        ctx.place = place
        return convolution(x, w, bias, *place)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        wanted = list(ctx.needs_input_grad[:3])
        made = _Backward.apply(g, *ctx.saved_tensors, ctx.place, wanted)  # type: ignore[no-untyped-call]
        return *made, None


class _Backward(Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, w: Tensor, place: Geometry, wanted: Any) -> Any:
        ctx.save_for_backward(g, x, w)
        ctx.place = place
        ctx.set_materialize_grads(False)
        return convolution_backward(g, x, w, [len(w)], *place, wanted)

    @staticmethod
    def backward(ctx: Any, v_x: Tensor | None, v_w: Tensor | None, v_bias: Tensor | None) -> Any:
        g, x, w = ctx.saved_tensors
        at_g, at_x, at_w = None, None, None
        needs_g, needs_x, needs_w = ctx.needs_input_grad[:3]
        if needs_g:
            parts = [] if v_x is None else [convolution(v_x, w, None, *ctx.place)]
            parts += [] if v_w is None else [convolution(x, v_w, None, *ctx.place)]
            parts += [] if v_bias is None else [v_bias.view(-1, *[1] * (g.ndim - 2)).expand_as(g)]
            at_g = sum(parts[1:], parts[0]) if parts else None
        wanted = [v_w is not None and needs_x, v_x is not None and needs_w, False]
        if any(wanted):
            others = (x if v_x is None else v_x, w if v_w is None else v_w)
            at_x, at_w, _ = convolution_backward(g, *others, [len(w)], *ctx.place, wanted)
        return at_g, at_x, at_w, None, None


class FastConvolutions(TorchFunctionMode):
    """While it is active, convolutions of batches on the CPU are differentiated as above."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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
) -> Any:
    """Return the convolution, or None where torch's own is to be used.

    That is for a single image, padding by name, another device, and under autocast, which would not
    see this one.
    """
    single = input.ndim != axes + 2 or isinstance(padding, str)
    if single or input.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return None

    def each(value: Any) -> list[int]:
        return [value] * axes if isinstance(value, int) else list(value)

    place = (each(stride), each(padding), each(dilation), False, [0], groups)
    return _Convolution.apply(input, weight, bias, place)  # type: ignore[no-untyped-call]
