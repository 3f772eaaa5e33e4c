"""LayerNorm and RMSNorm for a decoding step on a GPU: the statistics of a row, and a kernel for residual plus norm.

E1. The tests run the kernel in Triton's interpreter and compare it with the modules.

    R rows   p model width
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor
from triton import language as tl


class NormWeights(NamedTuple):
    """The parameters of a LayerNorm or an RMSNorm."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    rms: bool


@triton.jit
def row_statistics(x, inside, width, eps, RMS: tl.constexpr):
    """The mean (0 for RMSNorm) and the inverse standard deviation of a row."""
    mean = 0.0
    if not RMS:
        mean = tl.sum(x, 0) / width
        x = tl.where(inside, x - mean, 0.0)
    return mean, 1.0 / tl.sqrt(tl.sum(x * x, 0) / width + eps)


@triton.jit
def load_gain_and_shift(gain, shift, column, inside, SHIFT: tl.constexpr):
    """The norm's weight and bias at these columns."""
    g = tl.load(gain + column, mask=inside, other=0.0).to(tl.float32)
    s = tl.zeros_like(g)
    if SHIFT:
        s = tl.load(shift + column, mask=inside, other=0.0).to(tl.float32)
    return g, s


@triton.jit
def _add_norm(
    x,
    update,
    gain,
    shift,
    total,
    out,
    width,
    eps,
    ADD: tl.constexpr,
    RMS: tl.constexpr,
    SHIFT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    inside = column < width
    dtype = x.dtype.element_ty
    s = tl.load(x + row * width + column, mask=inside, other=0.0)
    if ADD:
        s = s + tl.load(update + row * width + column, mask=inside, other=0.0)
        tl.store(total + row * width + column, s, mask=inside)
    s = s.to(tl.float32)
    mean, scale = row_statistics(s, inside, width, eps, RMS)
    g, b = load_gain_and_shift(gain, shift, column, inside, SHIFT)
    tl.store(out + row * width + column, ((s - mean) * scale * g + b).to(dtype), mask=inside)


def add_norm(x: Tensor, update: Tensor | None, norm: NormWeights) -> tuple[Tensor, Tensor]:
    """Return x + update and its norm, both (R, p); without an update, x itself and its norm."""
    rows, width = x.shape
    out, total = torch.empty_like(x), x if update is None else torch.empty_like(x)
    _add_norm[(rows,)](
        x,
        x if update is None else update,
        norm.weight,
        norm.weight if norm.bias is None else norm.bias,
        total,
        out,
        width,
        norm.eps,
        ADD=update is not None,
        RMS=norm.rms,
        SHIFT=norm.bias is not None,
        WIDTH=triton.next_power_of_2(width),
        num_warps=4 if width <= 1024 else 8,
    )
    return total, out
