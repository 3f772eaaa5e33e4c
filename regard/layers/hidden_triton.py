"""Bias, ReLU and dropout of a feed-forward net's inner layer as one Triton kernel each way, for NVIDIA GPUs.

Vaswani et al. 2017, equation 2; E2. It is the widest tensor of a block. A number of the result is above zero only if it
was before ReLU and was not dropped, so the backward pass needs no more than that: a bit for each number.
Both passes go from the last row to the first: the product before them wrote the last rows last, so these are still in
the GPU's cache, and the product after them begins with the first. Tests hold it against the module with Triton's
interpreter.

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
from regard.attention.sums_triton import add_up

ROWS, COLUMNS = 8, 256  # that a program takes at a time
PROGRAMS = 8  # on a processor of the GPU


@triton.jit
def _forward(
    h,
    bias,
    seed,
    out,
    lives,  # (R, d_ff / 8): the bits of 8 numbers in a byte
    rows,
    width,
    dropped,
    grown,
    BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Some columns of some rows, and of others before them."""
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    if BIAS:
        shift = tl.load(bias + at[None, :], mask=(at < width)[None, :], other=0.0).to(tl.float32)
    key = tl.load(seed)
    for back in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        r = (tl.cdiv(rows, ROWS) - 1 - back) * ROWS + tl.arange(0, ROWS)
        inside = (r < rows)[:, None] & (at < width)[None, :]
        where = r.to(tl.int64)[:, None] * width + at[None, :]
        x = tl.load(h + where, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            x += shift
        own = r * tl.num_programs(1) + tl.program_id(1)  # no other part of a row draws the same
        x = tl.where(kept(key, own, dropped, ROWS, COLUMNS), x * grown, 0.0)
        x = tl.where(x <= 0.0, 0.0, x)  # what is no number stays none
        tl.store(out + where, x.to(out.dtype.element_ty), mask=inside)
        bits = tl.reshape((x > 0.0).to(tl.int32), (ROWS, COLUMNS // 8, 8)) << tl.arange(0, 8)[None, None, :]
        place, there = _bytes(r, rows, width, COLUMNS)
        tl.store(lives + place, tl.sum(bits, 2).to(tl.uint8), mask=there)


@triton.jit
def _bytes(r, rows, width, COLUMNS: tl.constexpr):
    """Where the bits of these rows and a program's columns lie, (ROWS, COLUMNS / 8), and whether there are any."""
    at, across = tl.program_id(1) * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8), tl.cdiv(width, 8)
    return r.to(tl.int64)[:, None] * across + at[None, :], (r < rows)[:, None] & (at < across)[None, :]


@triton.jit
def _backward(given, lives, dh, sums, rows, width, grown, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The same columns and rows; the sum over them is a part of the bias' gradient."""
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    to_bias = tl.zeros((ROWS, COLUMNS), tl.float32)
    for back in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        r = (tl.cdiv(rows, ROWS) - 1 - back) * ROWS + tl.arange(0, ROWS)
        inside = (r < rows)[:, None] & (at < width)[None, :]
        where = r.to(tl.int64)[:, None] * width + at[None, :]
        place, there = _bytes(r, rows, width, COLUMNS)
        eight = tl.load(lives + place, mask=there, other=0).to(tl.int32)[:, :, None]
        bits = tl.reshape((eight >> tl.arange(0, 8)[None, None, :]) & 1, (ROWS, COLUMNS))
        step = tl.load(given + where, mask=inside, other=0.0).to(tl.float32)
        step = tl.where(bits != 0, step * grown, 0.0)
        to_bias += step
        tl.store(dh + where, step.to(dh.dtype.element_ty), mask=inside)
    tl.store(sums + tl.program_id(0) * width + at, tl.sum(to_bias, 0), mask=at < width)


@custom_op("regard::relu_dropped", mutates_args=())
def relu_dropped(h: Tensor, bias: Tensor | None, seed: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    """h (…, d_ff) -> dropout(relu(h + bias)), and which of its numbers are above zero, as (…, d_ff / 8) bytes."""
    h = h.contiguous()
    out, lives, rows, width = torch.empty_like(h), _empty_bits(h), h.numel() // h.shape[-1], h.shape[-1]
    _forward[_grid(h)](
        h,
        h if bias is None else bias,
        seed,
        out,
        lives,
        rows,
        width,
        *share(dropout),
        BIAS=bias is not None,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=4,
    )
    return out, lives


@custom_op("regard::relu_dropped_back", mutates_args=())
def relu_dropped_back(given: Tensor, lives: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    """The gradients of h, and of the bias in float32."""
    given = given.contiguous()
    dh, rows, width = torch.empty_like(given), given.numel() // given.shape[-1], given.shape[-1]
    grid = _grid(given)
    sums = torch.empty(grid[0], width, device=given.device)
    _backward[grid](given, lives, dh, sums, rows, width, share(dropout)[1], ROWS=ROWS, COLUMNS=COLUMNS, num_warps=4)
    return dh, add_up(sums)


def _grid(x: Tensor) -> tuple[int, int]:
    """Programs down and across."""
    across = triton.cdiv(x.shape[-1], COLUMNS)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
    return min(triton.cdiv(x.numel() // x.shape[-1], ROWS), triton.cdiv(processors * PROGRAMS, across)), across


def _empty_bits(h: Tensor) -> Tensor:
    return h.new_empty(*h.shape[:-1], (h.shape[-1] + 7) // 8, dtype=torch.uint8)


def _contiguous(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@relu_dropped.register_fake
def _(h: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return _contiguous(h), _empty_bits(h)


@relu_dropped_back.register_fake
def _(given: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return _contiguous(given), given.new_empty(given.shape[-1], dtype=torch.float32)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, bias, _, ctx.dropout = inputs
    ctx.bias = None if bias is None else bias.dtype
    ctx.save_for_backward(output[1])
    ctx.set_materialize_grads(False)  # bits have no gradient, and none is made up


def _gradients(ctx: Any, given: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if given is None:
        return (None,) * 4
    dh, to_bias = relu_dropped_back(given, *ctx.saved_tensors, ctx.dropout)
    return dh, None if ctx.bias is None else to_bias.to(ctx.bias), None, None


relu_dropped.register_autograd(_gradients, setup_context=_remember)
