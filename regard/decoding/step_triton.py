"""The kernels of a decoder's step on a GPU, in Triton: few, so that a step of a small model is not a hundred waits.

E3, E4, E6. At one row a step does next to no work; what takes time is one kernel waiting for the other. So a norm is
part of the product that follows it, a residual of the product before it, and new keys and values go to their cache in
the kernel that looks at it. No kernel depends on numbers that the host would have to know: each row has its own place.
Tests run them by Triton's interpreter and hold them against the modules.

    R rows   p model width   H heads   G key-value heads   d head width   C capacity   n source tokens   B inputs
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
def _embed(tokens, lengths, table, places, out, width, factor, ADD: tl.constexpr, WIDTH: tl.constexpr):
    """A row's token vector, and the vector of its place."""
    r = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    inside = at < width
    x = tl.load(table + tl.load(tokens + r).to(tl.int64) * width + at, mask=inside, other=0.0)
    x = (x.to(tl.float32) * factor).to(table.dtype.element_ty)
    if ADD:
        x = x + tl.load(places + tl.load(lengths + r) * width + at, mask=inside, other=0.0)
    tl.store(out + r * width + at, x, mask=inside)


def embed(tokens: Tensor, lengths: Tensor, table: Tensor, factor: float, places: Tensor | None) -> Tensor:
    """The token vectors (R, p) of tokens (R,) at their places, given those of the places (C, p)."""
    width = table.shape[1]
    out = table.new_empty(len(tokens), width)
    _embed[(len(tokens),)](
        tokens,
        lengths,
        table,
        table if places is None else places,
        out,
        width,
        factor,
        ADD=places is not None,
        WIDTH=triton.next_power_of_2(width),
    )
    return out


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
    ROWS: tl.constexpr,  # not used: there is one
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
        ROWS=ROWS,
        WIDTH=triton.next_power_of_2(inner if residual is None else outer),
        INNER=min(deep, max(16, triton.next_power_of_2(inner))),
        OUTER=columns,
        num_warps=4,
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


@triton.jit
def _turned(head, at, d, inside, place, frequencies, turning, INTERLEAVED: tl.constexpr):
    """A query or key (d,), turned by its place; Su et al. 2021, equation 34."""
    half = turning // 2
    if INTERLEAVED:
        first = at % 2 == 0
        other = tl.where(first, at + 1, at - 1)
        pair = at // 2
    else:
        first = at < half
        other = tl.where(first, at + half, at - half)
        pair = at % half
    turns = at < turning
    x = tl.load(head + at, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(head + other, mask=turns, other=0.0).to(tl.float32)
    angle = place.to(tl.float32) * tl.load(frequencies + pair, mask=turns, other=0.0)
    y = tl.where(first, -y, y)
    return tl.where(turns, x * tl.cos(angle) + y * tl.sin(angle), x).to(head.dtype.element_ty).to(tl.float32)


@triton.jit
def _attend(
    q,  # (R, ·), the queries of all heads, then for self-attention the new keys and values
    k,  # (R, G, C, d), or for cross-attention (B, G, n, d)
    v,
    lengths,  # (R,) tokens before this one
    table,  # (R, C) the row that holds the keys of each place
    keep,  # (B, n) whether there is a source token
    frequencies,
    out,  # (R, H·d)
    wide,  # of q
    heads,
    kv_heads,
    d,
    keys,  # C or n
    sharing,  # rows of a source
    turning,
    scale,
    CROSS: tl.constexpr,
    MOVED: tl.constexpr,  # whether rows were put in another order, so that the table is needed
    TURNS: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    D: tl.constexpr,
    KEYS: tl.constexpr,
):
    r, h = tl.program_id(0), tl.program_id(1)
    g = h // (heads // kv_heads)
    at = tl.arange(0, D)
    inside = at < d
    head = q + r * wide + h * d
    place = tl.load(lengths + r)
    if TURNS:
        query = _turned(head, at, d, inside, place, frequencies, turning, INTERLEAVED)
    else:
        query = tl.load(head + at, mask=inside, other=0.0).to(tl.float32)
    query *= scale
    if CROSS:
        end = keys
        top = -1e30
        mass = 0.0
        mixed = tl.zeros((D,), tl.float32)
    else:
        new = q + r * wide + heads * d + g * d
        if TURNS:
            key = _turned(new, at, d, inside, place, frequencies, turning, INTERLEAVED)
        else:
            key = tl.load(new + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(new + kv_heads * d + at, mask=inside, other=0.0).to(tl.float32)
        if h % (heads // kv_heads) == 0:
            own = ((r.to(tl.int64) * kv_heads + g) * keys + place) * d + at
            tl.store(k + own, key.to(k.dtype.element_ty), mask=inside)
            tl.store(v + own, value.to(v.dtype.element_ty), mask=inside)
        end = place
        top = tl.sum(query * key, 0)
        mass = 1.0
        mixed = value
    for start in range(0, end, KEYS):
        j = start + tl.arange(0, KEYS)
        seen = j < end
        if CROSS:
            row = tl.zeros((KEYS,), tl.int64) + r // sharing
            seen = seen & (tl.load(keep + row * keys + j, mask=seen, other=0) != 0)
        else:
            row = tl.zeros((KEYS,), tl.int64) + r
            if MOVED:
                row = tl.load(table + r * keys + j, mask=seen, other=0).to(tl.int64)
        both = seen[:, None] & inside[None, :]
        where = (((row * kv_heads + g) * keys + j) * d)[:, None] + at[None, :]
        scores = tl.sum(tl.load(k + where, mask=both, other=0.0).to(tl.float32) * query[None, :], 1)
        scores = tl.where(seen, scores, -1e30)
        higher = tl.maximum(top, tl.max(scores, 0))
        shares = tl.where(seen, tl.exp(scores - higher), 0.0)
        fade = tl.exp(top - higher)
        values = tl.load(v + where, mask=both, other=0.0).to(tl.float32)
        mixed = mixed * fade + tl.sum(shares[:, None] * values, 0)
        mass = mass * fade + tl.sum(shares, 0)
        top = higher
    tl.store(out + (r * heads + h) * d + at, (mixed / mass).to(out.dtype.element_ty), mask=inside)


def attend_own(
    qkv: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Tensor,
    table: Tensor | None,
    *,
    heads: int,
    turns: tuple[Tensor, bool] | None = None,
) -> Tensor:
    """Each row looks at its text so far, with the new token, which goes to the caches: (R, H·d).

    `turns` are the frequencies of rotary positions, and whether they are interleaved.
    """
    rows, kv_heads, capacity, d = k.shape
    out = qkv.new_empty(rows, heads * d)
    _attend[(rows, heads)](
        qkv,
        k,
        v,
        lengths,
        lengths if table is None else table,
        lengths,
        lengths if turns is None else turns[0],
        out,
        qkv.shape[1],
        heads,
        kv_heads,
        d,
        capacity,
        1,
        0 if turns is None else 2 * len(turns[0]),
        d**-0.5,
        CROSS=False,
        MOVED=table is not None,
        TURNS=turns is not None,
        INTERLEAVED=turns is not None and turns[1],
        D=triton.next_power_of_2(d),
        KEYS=64,
        num_warps=4,
    )
    return out


def attend_source(q: Tensor, k: Tensor, v: Tensor, keep: Tensor, lengths: Tensor, *, heads: int) -> Tensor:
    """Each row looks at its source, which rows side by side share: (R, H·d)."""
    sources, kv_heads, n, d = k.shape
    rows = len(q)
    out = q.new_empty(rows, heads * d)
    _attend[(rows, heads)](
        q,
        k,
        v,
        lengths,
        lengths,
        keep,
        lengths,
        out,
        q.shape[1],
        heads,
        kv_heads,
        d,
        n,
        rows // sources,
        0,
        d**-0.5,
        CROSS=True,
        MOVED=False,
        TURNS=False,
        INTERLEAVED=False,
        D=triton.next_power_of_2(d),
        KEYS=64,
        num_warps=4,
    )
    return out
