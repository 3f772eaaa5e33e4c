"""Products of rounded numbers, for train_fp8.py: which rounding of an fp8 step costs how much loss?

Each matrix of the three products of a layer is rounded to 8 bits or stays in bfloat16, and the products themselves run
in bfloat16, in which every number of 8 bits times a power of two is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from regard.kernels.fp8 import linear, projection_triton
from regard.kernels.fp8.casts import E4M3, E5M2, Format, cast_both
from regard.kernels.training import fused_feed_forward
from regard.kernels.training.split_heads_triton import CutHeads


class Rounding(NamedTuple):
    """The formats of the two factors of each product, None for bfloat16, and when the scale is measured."""

    y: tuple[Format | None, Format | None] = (E4M3, E4M3)  # x, w
    dx: tuple[Format | None, Format | None] = (E5M2, E4M3)  # g, w
    dw: tuple[Format | None, Format | None] = (E5M2, E4M3)  # g, x
    current: bool = False  # scale by the largest magnitude of this matrix, not of the step before


PRODUCTS = torch.bfloat16
PLAIN = (None, None)
ROUNDINGS = {
    "emulated": Rounding(),
    "current scales": Rounding(current=True),
    "forward only": Rounding(dx=PLAIN, dw=PLAIN),
    "backward only": Rounding(y=PLAIN),
    "dx only": Rounding(y=PLAIN, dw=PLAIN),
    "dw only": Rounding(y=PLAIN, dx=PLAIN),
    "gradients e4m3": Rounding(dx=(E4M3, E4M3), dw=(E4M3, E4M3)),
    "w only": Rounding(y=(None, E4M3), dx=(None, E4M3), dw=PLAIN),
    "x only": Rounding(y=(E4M3, None), dx=PLAIN, dw=(None, E4M3)),
}


def rounded(x: Tensor, amax: Tensor, form: Format | None, current: bool) -> Tensor:
    """Return x as numbers of 8 bits that are stored in bfloat16."""
    if form is None:
        return x.to(PRODUCTS)
    rows = x.flatten(0, -2)
    if current:
        amax = torch.stack([rows.abs().amax().float(), amax[1]])
    cast = cast_both(rows, amax, form)
    return (cast.straight.view(form.dtype).to(PRODUCTS) * cast.inverse.to(PRODUCTS)).view(x.shape)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, amax: Tensor, rounding: Rounding) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.amax, ctx.rounding, ctx.bias = amax, rounding, bias
        y = (
            rounded(x, amax[0], rounding.y[0], rounding.current)
            @ rounded(weight, amax[1], rounding.y[1], rounding.current).T
        )
        return y if bias is None else y + bias.to(y.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        (to_x, of_w), (to_w, of_x), current = ctx.rounding.dx, ctx.rounding.dw, ctx.rounding.current
        dx = rounded(g, ctx.amax[2], to_x, current) @ rounded(weight, ctx.amax[1], of_w, current)
        g_rows = rounded(g, ctx.amax[2], to_w, current).flatten(0, -2)
        dw = g_rows.T @ rounded(x, ctx.amax[0], of_x, current).flatten(0, -2)
        to_bias = g.flatten(0, -2).sum(0, dtype=torch.float32) if ctx.needs_input_grad[2] else None
        return dx.to(x.dtype), dw.to(weight.dtype), to_bias, None, None


class _Heads:
    @staticmethod
    def apply(x: Tensor, weight: Tensor, bias: Tensor, heads: int, amax: Tensor) -> tuple[Tensor, ...]:
        return CutHeads.apply(linear.linear(x, weight, bias.detach(), amax), bias, heads)


@contextmanager
def emulated(rounding: Rounding) -> Iterator[None]:
    """Compute the layers of the blocks with these roundings."""

    def fp8_linear(x: Tensor, weight: Tensor, bias: Tensor | None, amax: Tensor) -> tuple[Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            return (_Linear.apply(x, weight, bias, amax, rounding),)

    with (
        patch.object(linear, "fp8_linear", fp8_linear),
        patch.object(projection_triton, "Fp8Heads", _Heads),
        patch.object(fused_feed_forward, "training_scales", lambda module: None),
    ):
        yield
