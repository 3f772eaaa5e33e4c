"""Bias, ReLU and dropout of a feed-forward net's inner layer as one Triton kernel each way, for NVIDIA GPUs.

Vaswani et al. 2017, equation 2; E2. It is the widest tensor of a block. A number of the result is above zero only if it
was before ReLU and was not dropped, so the backward pass needs the result alone, which the next product keeps anyway.
Tests hold it against the module with Triton's interpreter.

    R rows: all tokens   d_ff inner width
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.library import custom_op
from triton import language as tl

from regard.attention.drawn_triton import kept, share

ROWS, COLUMNS = 8, 256  # that a program takes at a time
PROGRAMS = 8  # on a processor of the GPU


@triton.jit
def _forward(
    h,
    bias,
    seed,
    out,
    rows,
    width,
    dropped,
    grown,
    BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Some columns of some rows, and of others further on."""
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    if BIAS:
        shift = tl.load(bias + at[None, :], mask=(at < width)[None, :], other=0.0).to(tl.float32)
    key = tl.load(seed)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        r = first + tl.arange(0, ROWS)
        inside = (r < rows)[:, None] & (at < width)[None, :]
        where = r.to(tl.int64)[:, None] * width + at[None, :]
        x = tl.load(h + where, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            x += shift
        own = r * tl.num_programs(1) + tl.program_id(1)  # no other part of a row draws the same
        x = tl.where(kept(key, own, dropped, ROWS, COLUMNS), x * grown, 0.0)
        x = tl.where(x <= 0.0, 0.0, x)  # what is no number stays none
        tl.store(out + where, x.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _backward(given, out, dh, sums, rows, width, grown, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The same columns and rows; the sum over them is a part of the bias' gradient."""
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    to_bias = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        r = first + tl.arange(0, ROWS)
        inside = (r < rows)[:, None] & (at < width)[None, :]
        where = r.to(tl.int64)[:, None] * width + at[None, :]
        lives = tl.load(out + where, mask=inside, other=0.0).to(tl.float32) > 0.0
        step = tl.load(given + where, mask=inside, other=0.0).to(tl.float32)
        step = tl.where(lives, step * grown, 0.0)
        to_bias += step
        tl.store(dh + where, step.to(dh.dtype.element_ty), mask=inside)
    tl.store(sums + tl.program_id(0) * width + at, tl.sum(to_bias, 0), mask=at < width)


@custom_op("regard::relu_dropped", mutates_args=())
def relu_dropped(h: Tensor, bias: Tensor | None, seed: Tensor, dropout: float) -> Tensor:
    """h (…, d_ff) -> dropout(relu(h + bias))."""
    h = h.contiguous()
    out, rows, width = torch.empty_like(h), h.numel() // h.shape[-1], h.shape[-1]
    _forward[_grid(h)](
        h,
        h if bias is None else bias,
        seed,
        out,
        rows,
        width,
        *share(dropout),
        BIAS=bias is not None,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=4,
    )
    return out


@custom_op("regard::relu_dropped_back", mutates_args=())
def relu_dropped_back(given: Tensor, out: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    """The gradients of h, and of the bias in float32."""
    given, dh, rows, width = given.contiguous(), torch.empty_like(out), out.numel() // out.shape[-1], out.shape[-1]
    grid = _grid(out)
    sums = torch.empty(grid[0], width, device=out.device)
    _backward[grid](given, out, dh, sums, rows, width, share(dropout)[1], ROWS=ROWS, COLUMNS=COLUMNS, num_warps=4)
    return dh, sums.sum(0)


def _grid(x: Tensor) -> tuple[int, int]:
    """Programs down and across."""
    across = triton.cdiv(x.shape[-1], COLUMNS)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
    return min(triton.cdiv(x.numel() // x.shape[-1], ROWS), triton.cdiv(processors * PROGRAMS, across)), across


@relu_dropped.register_fake
def _(h: Tensor, *_: object) -> Tensor:
    return torch.empty_like(h, memory_format=torch.contiguous_format)


@relu_dropped_back.register_fake
def _(given: Tensor, out: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(out), out.new_empty(out.shape[-1], dtype=torch.float32)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, bias, _, ctx.dropout = inputs
    ctx.bias = None if bias is None else bias.dtype
    ctx.save_for_backward(output)


def _gradients(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
    dh, to_bias = relu_dropped_back(given, *ctx.saved_tensors, ctx.dropout)
    return dh, None if ctx.bias is None else to_bias.to(ctx.bias), None, None


relu_dropped.register_autograd(_gradients, setup_context=_remember)
