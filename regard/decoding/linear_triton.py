"""Products and norms of a decoder's step on a GPU, in Triton: for few rows a norm is part of the product after it.

E1, E2, E4. Tests run the kernels by Triton's interpreter and hold them against the modules.

    R rows   p model width
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor
from triton import language as tl

ROWS = 16  # at most, of a product whose norm is part of it: what the tensor cores take at once
# Columns of one row that a program computes, by how many there are at most: enough programs for all cores.
COLUMNS = {1024: 4, 2048: 8, 2**31: 16}
ACTIVATIONS = ("", "relu", "gelu", "gelu-tanh", "swiglu")


class Norm(NamedTuple):
    """The numbers of a LayerNorm or RMSNorm."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    rms: bool


@triton.jit
def _statistics(row, width, eps, RMS: tl.constexpr, WIDTH: tl.constexpr):
    """The mean (0 for RMSNorm) and one over the deviation of a row."""
    at = tl.arange(0, WIDTH)
    x = tl.load(row + at, mask=at < width, other=0.0).to(tl.float32)
    mean = 0.0
    if not RMS:
        mean = tl.sum(x, 0) / width
        x = tl.where(at < width, x - mean, 0.0)
    return mean, 1.0 / tl.sqrt(tl.sum(x * x, 0) / width + eps)


@triton.jit
def _normed(x, mean, scale, gain, shift, at, inside, SHIFT: tl.constexpr):
    x = (x - mean) * scale * tl.load(gain + at, mask=inside, other=0.0).to(tl.float32)
    if SHIFT:
        x += tl.load(shift + at, mask=inside, other=0.0).to(tl.float32)
    return x


@triton.jit
def _activated(x, gate, ACTIVATION: tl.constexpr):
    if ACTIVATION == 1:
        x = tl.maximum(x, 0.0)
    if ACTIVATION == 2:
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    if ACTIVATION == 3:
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    if ACTIVATION == 4:
        x = x * tl.sigmoid(x) * gate
    return x


@triton.jit
def _linear(
    x,
    weight,
    bias,
    residual,
    gain,
    shift,
    out,
    rows,
    inner,
    outer,
    eps,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,  # 1: of x, 2: of the residual
    RMS: tl.constexpr,
    SHIFT: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
    WIDTH: tl.constexpr,  # of what is normed
    INNER: tl.constexpr,
    OUTER: tl.constexpr,
):
    """Some columns of one row."""
    column = tl.program_id(0) * OUTER + tl.arange(0, OUTER)
    wanted = column < outer
    kind = x.dtype.element_ty
    mean, scale = 0.0, 1.0
    if NORM == 1:
        mean, scale = _statistics(x, inner, eps, RMS, WIDTH)
    sums = tl.zeros((OUTER,), tl.float32)
    gates = tl.zeros((OUTER,), tl.float32)
    for start in range(0, inner, INNER):
        at = start + tl.arange(0, INNER)
        inside = at < inner
        v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        if NORM == 1:
            v = _normed(v, mean, scale, gain, shift, at, inside, SHIFT).to(kind).to(tl.float32)
        both = wanted[:, None] & inside[None, :]
        w = tl.load(weight + column[:, None] * inner + at[None, :], mask=both, other=0.0).to(tl.float32)
        sums += tl.sum(w * v[None, :], 1)
        if ACTIVATION == 4:
            w = tl.load(weight + (outer + column)[:, None] * inner + at[None, :], mask=both, other=0.0)
            gates += tl.sum(w.to(tl.float32) * v[None, :], 1)
    if BIAS:
        sums += tl.load(bias + column, mask=wanted, other=0.0).to(tl.float32)
        if ACTIVATION == 4:
            gates += tl.load(bias + outer + column, mask=wanted, other=0.0).to(tl.float32)
    y = _activated(sums.to(kind).to(tl.float32), gates.to(kind).to(tl.float32), ACTIVATION)
    if RESIDUAL:
        before = tl.load(residual + column, mask=wanted, other=0.0).to(tl.float32)
        if NORM == 2:
            mean, scale = _statistics(residual, outer, eps, RMS, WIDTH)
            before = _normed(before, mean, scale, gain, shift, column, wanted, SHIFT).to(kind).to(tl.float32)
        y = y.to(kind).to(tl.float32) + before
    tl.store(out + column, y.to(kind), mask=wanted)


@triton.jit
def _linear_rows(
    x,
    weight,
    bias,
    residual,
    gain,
    shift,
    out,
    rows,
    inner,
    outer,
    eps,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,  # as above
    RMS: tl.constexpr,
    SHIFT: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    INNER: tl.constexpr,
    OUTER: tl.constexpr,
):
    """Some columns of all rows, which are few: the weights are read once, and the tensor cores multiply."""
    column = tl.program_id(0) * OUTER + tl.arange(0, OUTER)
    wanted = column < outer
    row = tl.arange(0, ROWS)
    there = row < rows
    cells = there[:, None] & wanted[None, :]
    kind = x.dtype.element_ty
    mean = tl.zeros((ROWS,), tl.float32)
    scale = mean
    if NORM != 0:
        width = inner
        normed = x
        if NORM == 2:
            width = outer
            normed = residual
        whole = tl.arange(0, WIDTH)
        known = there[:, None] & (whole < width)[None, :]
        s = tl.load(normed + row[:, None] * width + whole[None, :], mask=known, other=0.0).to(tl.float32)
        if not RMS:
            mean = tl.sum(s, 1) / width
            s = tl.where(known, s - mean[:, None], 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(s * s, 1) / width + eps)
    sums = tl.zeros((ROWS, OUTER), tl.float32)
    gates = tl.zeros((ROWS, OUTER), tl.float32)
    for start in range(0, inner, INNER):
        at = start + tl.arange(0, INNER)
        inside = at < inner
        v = tl.load(x + row[:, None] * inner + at[None, :], mask=there[:, None] & inside[None, :], other=0.0)
        if NORM == 1:
            v = (v.to(tl.float32) - mean[:, None]) * scale[:, None]
            v *= tl.load(gain + at, mask=inside, other=0.0).to(tl.float32)[None, :]
            if SHIFT:
                v += tl.load(shift + at, mask=inside, other=0.0).to(tl.float32)[None, :]
            v = v.to(kind)
        both = wanted[None, :] & inside[:, None]
        w = tl.load(weight + column[None, :] * inner + at[:, None], mask=both, other=0.0)  # transposed
        sums = tl.dot(v, w, sums, input_precision="ieee")
        if ACTIVATION == 4:
            w = tl.load(weight + (outer + column)[None, :] * inner + at[:, None], mask=both, other=0.0)
            gates = tl.dot(v, w, gates, input_precision="ieee")
    if BIAS:
        sums += tl.load(bias + column, mask=wanted, other=0.0).to(tl.float32)[None, :]
        if ACTIVATION == 4:
            gates += tl.load(bias + outer + column, mask=wanted, other=0.0).to(tl.float32)[None, :]
    y = _activated(sums.to(kind).to(tl.float32), gates.to(kind).to(tl.float32), ACTIVATION)
    if RESIDUAL:
        before = tl.load(residual + row[:, None] * outer + column[None, :], mask=cells, other=0.0).to(tl.float32)
        if NORM == 2:
            before = (before - mean[:, None]) * scale[:, None]
            before *= tl.load(gain + column, mask=wanted, other=0.0).to(tl.float32)[None, :]
            if SHIFT:
                before += tl.load(shift + column, mask=wanted, other=0.0).to(tl.float32)[None, :]
            before = before.to(kind).to(tl.float32)
        y = y.to(kind).to(tl.float32) + before
    tl.store(out + row[:, None] * outer + column[None, :], y.to(kind), mask=cells)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    norm: Norm | None = None,
    activation: str = "",
    residual: Tensor | None = None,
) -> Tensor:
    """activation(x W + b) + residual for up to ROWS rows x (R, p). The norm is that of the residual if there is one."""
    rows, inner = x.shape
    outer = len(weight) // (2 if activation == "swiglu" else 1)
    out = x.new_empty(rows, outer)
    if rows == 1:
        columns = next(columns for most, columns in COLUMNS.items() if outer <= most)
        deep = 8192 // columns
    else:
        columns, deep = 16 if outer <= 4096 else 32, 256
    kernel = _linear if rows == 1 else _linear_rows
    kernel[(triton.cdiv(outer, columns),)](
        x,
        weight,
        weight if bias is None else bias,
        x if residual is None else residual,
        weight if norm is None else norm.weight,
        weight if norm is None or norm.bias is None else norm.bias,
        out,
        rows,
        inner,
        outer,
        0.0 if norm is None else norm.eps,
        BIAS=bias is not None,
        NORM=0 if norm is None else 1 if residual is None else 2,
        RMS=norm is not None and norm.rms,
        SHIFT=norm is not None and norm.bias is not None,
        ACTIVATION=ACTIVATIONS.index(activation),
        RESIDUAL=residual is not None,
        WIDTH=triton.next_power_of_2(inner if residual is None else outer),
        INNER=min(deep, max(16, triton.next_power_of_2(inner))),
        OUTER=columns,
        num_warps=4,
        **({} if rows == 1 else {"ROWS": ROWS}),
    )
    return out


@triton.jit
def _add_norm(
    x,
    more,
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
    r = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    inside = at < width
    kind = x.dtype.element_ty
    s = tl.load(x + r * width + at, mask=inside, other=0.0)
    if ADD:
        s = s + tl.load(more + r * width + at, mask=inside, other=0.0)
        tl.store(total + r * width + at, s, mask=inside)
    s = s.to(tl.float32)
    mean = 0.0
    if not RMS:
        mean = tl.sum(s, 0) / width
    c = tl.where(inside, s - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(c * c, 0) / width + eps)
    tl.store(out + r * width + at, _normed(s, mean, scale, gain, shift, at, inside, SHIFT).to(kind), mask=inside)


def add_norm(x: Tensor, more: Tensor | None, norm: Norm) -> tuple[Tensor, Tensor]:
    """x + more and its norm, (R, p) both."""
    rows, width = x.shape
    out, total = torch.empty_like(x), x if more is None else torch.empty_like(x)
    _add_norm[(rows,)](
        x,
        x if more is None else more,
        norm.weight,
        norm.weight if norm.bias is None else norm.bias,
        total,
        out,
        width,
        norm.eps,
        ADD=more is not None,
        RMS=norm.rms,
        SHIFT=norm.bias is not None,
        WIDTH=triton.next_power_of_2(width),
        num_warps=4 if width <= 1024 else 8,
    )
    return total, out
