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
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

ROWS = 16  # at most, of a product whose norm is part of it: what the tensor cores take at once
# Columns of one row that a program computes, by how many there are at most: enough programs for all cores.
COLUMNS = {1024: 4, 2048: 8, 2**31: 16}
HURRY = 8  # rows up to which a kernel comes early; more lose by it
ALONE = 16384  # numbers that come out, up to which each row reads the weights for itself: the cache has them
TILE = 8192  # weights that a program holds at most, where a column does not have more
ACTIVATIONS = ("", "relu", "gelu", "gelu-tanh", "swiglu")


class Norm(NamedTuple):
    """The numbers of a LayerNorm or RMSNorm."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    rms: bool


def early(x: Tensor) -> dict[str, bool]:
    """Settings of a kernel for these rows. Few of them leave much of a GPU idle, so the next kernel may be there early.

    It reads weights, which nobody changes, and waits with all else for the end of the one before: Hopper's programmatic
    dependent launch.
    """
    able = x.is_cuda and torch.version.cuda is not None and torch.cuda.get_device_capability(x.device) >= (9, 0)
    return {"EARLY": True, "launch_pdl": True} if able and len(x) <= HURRY else {"EARLY": False}


@triton.jit
def wait(EARLY: tl.constexpr):
    """Let the next kernel come, and wait for what the ones before have written."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def _statistics(x, inside, width, eps, RMS: tl.constexpr):
    """The mean (0 for RMSNorm) and one over the deviation of a row."""
    mean = 0.0
    if not RMS:
        mean = tl.sum(x, 0) / width
        x = tl.where(inside, x - mean, 0.0)
    return mean, 1.0 / tl.sqrt(tl.sum(x * x, 0) / width + eps)


@triton.jit
def _gains(gain, shift, at, inside, SHIFT: tl.constexpr):
    """What a norm multiplies these columns by, and what it adds."""
    g = tl.load(gain + at, mask=inside, other=0.0).to(tl.float32)
    s = tl.zeros_like(g)
    if SHIFT:
        s = tl.load(shift + at, mask=inside, other=0.0).to(tl.float32)
    return g, s


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
    WIDTH: tl.constexpr,  # of the residual
    INNER: tl.constexpr,
    OUTER: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Some columns of one row. What the kernel before does not write is read while that one still runs."""
    r = tl.program_id(0)
    x += r * inner
    residual += r * outer
    out += r * outer
    column = tl.program_id(1) * OUTER + tl.arange(0, OUTER)
    wanted = column < outer
    at = tl.arange(0, INNER)
    inside = at < inner
    kind = x.dtype.element_ty
    tile = weight + column[:, None] * inner + at[None, :]
    both = wanted[:, None] & inside[None, :]
    w = tl.load(tile, mask=both, other=0.0)
    if ACTIVATION == 4:
        gate = tl.load(tile + outer * inner, mask=both, other=0.0)
    sums = tl.zeros((OUTER,), tl.float32)
    gates = sums
    if BIAS:
        sums = tl.load(bias + column, mask=wanted, other=0.0).to(tl.float32)
        if ACTIVATION == 4:
            gates = tl.load(bias + outer + column, mask=wanted, other=0.0).to(tl.float32)
    if NORM == 1:
        g, s = _gains(gain, shift, at, inside, SHIFT)
    if NORM == 2:
        g, s = _gains(gain, shift, column, wanted, SHIFT)
    wait(EARLY)
    v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if RESIDUAL:
        before = tl.load(residual + column, mask=wanted, other=0.0).to(tl.float32)
    if NORM == 2:
        whole = tl.arange(0, WIDTH)
        row = tl.load(residual + whole, mask=whole < outer, other=0.0).to(tl.float32)
        mean, scale = _statistics(row, whole < outer, outer, eps, RMS)
        before = ((before - mean) * scale * g + s).to(kind).to(tl.float32)
    if NORM == 1:
        mean, scale = _statistics(v, inside, inner, eps, RMS)
        v = ((v - mean) * scale * g + s).to(kind).to(tl.float32)
    sums += tl.sum(w.to(tl.float32) * v[None, :], 1)
    if ACTIVATION == 4:
        gates += tl.sum(gate.to(tl.float32) * v[None, :], 1)
    y = _activated(sums.to(kind).to(tl.float32), gates.to(kind).to(tl.float32), ACTIVATION)
    if RESIDUAL:
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
    EARLY: tl.constexpr,
):
    """Some columns of all rows, which are few: the weights are read once, and the tensor cores multiply."""
    column = tl.program_id(1) * OUTER + tl.arange(0, OUTER)
    wanted = column < outer
    row = tl.arange(0, ROWS)
    there = row < rows
    cells = there[:, None] & wanted[None, :]
    kind = x.dtype.element_ty
    wait(EARLY)
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
    alone = rows == 1 or rows * outer <= ALONE
    if alone:
        deep = triton.next_power_of_2(inner)
        columns = min(next(columns for most, columns in COLUMNS.items() if outer <= most), max(1, TILE // deep))
    else:
        columns, deep = 16 if outer <= 4096 else 32, min(256, max(16, triton.next_power_of_2(inner)))
    kernel = _linear if alone else _linear_rows
    kernel[(rows if alone else 1, triton.cdiv(outer, columns))](
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
        INNER=deep,
        OUTER=columns,
        num_warps=4,
        **({} if alone else {"ROWS": ROWS}),
        **early(x),
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
    mean, scale = _statistics(s, inside, width, eps, RMS)
    g, b = _gains(gain, shift, at, inside, SHIFT)
    tl.store(out + r * width + at, ((s - mean) * scale * g + b).to(kind), mask=inside)


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
