"""The Triton kernels of residual, dropout and norm; residual_triton.py launches them.

Vaswani et al. 2017, sections 3.1 and 5.4; E1, E3. The forward kernel reads x and h and writes s = x + dropout(h) and
norm(s). The backward kernel reads or writes each of these once; without dropout x and h have the same gradient. No
other tensor of that size is read or written: the dropout mask is generated again, and the mean and the variance are
computed again. The kernels process the last rows first: the product before wrote them last, so they are still in the
GPU's cache, and the product after starts with the first rows.

    R rows: all tokens   p width
"""

from __future__ import annotations

import triton
from triton import language as tl

from regard.kernels.training.dropout_triton import kept


@triton.jit
def _inside(r, rows, at, width, ROWS: tl.constexpr):
    """Return which numbers exist, (ROWS, P); with one row at a time, all rows do."""
    columns = (at < width)[None, :]
    if ROWS > 1:
        columns = (r < rows)[:, None] & columns
    return columns


@triton.jit
def _normed(s, inside, width, eps, CENTRED: tl.constexpr):
    """Return the normalized s (ROWS, P), centred if CENTRED, and its inverse standard deviation (ROWS,)."""
    if CENTRED:
        s = tl.where(inside, s - (tl.sum(s, 1) / width)[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(s * s, 1) / width + eps)
    return s * inverse[:, None], inverse


@triton.jit
def norm_kernel(
    x,
    h,
    weight,
    bias,
    seed,
    y,
    s,
    rows,
    eps,
    dropped,
    inverse_keep,
    width: tl.constexpr,
    DROP: tl.constexpr,
    CENTRED: tl.constexpr,
    BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    P: tl.constexpr,
):
    """Compute s = x + dropout(h) and y = norm(s) for some rows."""
    r, at = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS + tl.arange(0, ROWS), tl.arange(0, P)
    inside = _inside(r, rows, at, width, ROWS)
    where = r.to(tl.int64)[:, None] * width + at[None, :]
    added = tl.load(h + where, mask=inside, other=0.0).to(tl.float32)
    if DROP:
        added = tl.where(kept(tl.load(seed), r, dropped, ROWS, P), added * inverse_keep, 0.0)
    total = tl.load(x + where, mask=inside, other=0.0).to(tl.float32) + added
    rounded = total.to(s.dtype.element_ty)
    tl.store(s + where, rounded, mask=inside)
    # Normalize the rounded values, because the backward pass reads those.
    normed, _ = _normed(rounded.to(tl.float32), inside, width, eps, CENTRED)
    normed *= tl.load(weight + at[None, :], mask=(at < width)[None, :], other=0.0).to(tl.float32)
    if BIAS:
        normed += tl.load(bias + at[None, :], mask=(at < width)[None, :], other=0.0).to(tl.float32)
    tl.store(y + where, normed.to(y.dtype.element_ty), mask=inside)


@triton.jit
def norm_back_kernel(
    dy,
    ds,
    s,
    weight,
    seed,
    dx,
    dh,
    sums,  # (programs, 2 or 3, p) of the gradients of weight, bias and, if SHIFT, the bias of h
    rows,
    eps,
    dropped,
    inverse_keep,
    width: tl.constexpr,
    DROP: tl.constexpr,
    SHIFT: tl.constexpr,
    CENTRED: tl.constexpr,
    MORE: tl.constexpr,  # whether there is a gradient ds
    POST: tl.constexpr,  # whether ds is added to dy
    STAGES: tl.constexpr,
    ROWS: tl.constexpr,
    P: tl.constexpr,
):
    """Compute gradients for many rows, so that each program writes one sum per vector; the next rows are prefetched.

    With n = (s - mean) / size and g = weight dy:   dx = (g - mean(g) - n mean(g n)) / size + ds.
    If POST, ds is added to dy.
    """
    at = tl.arange(0, P)
    gain = tl.load(weight + at[None, :], mask=(at < width)[None, :], other=0.0).to(tl.float32)
    to_weight, to_bias = tl.zeros((ROWS, P), tl.float32), tl.zeros((ROWS, P), tl.float32)
    to_shift = tl.zeros((ROWS, P), tl.float32)
    if DROP:
        key = tl.load(seed)
    for back in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        r = (tl.cdiv(rows, ROWS) - 1 - back) * ROWS + tl.arange(0, ROWS)
        inside = _inside(r, rows, at, width, ROWS)
        where = r.to(tl.int64)[:, None] * width + at[None, :]
        gradient = tl.load(dy + where, mask=inside, other=0.0).to(tl.float32)
        if MORE:
            extra = tl.load(ds + where, mask=inside, other=0.0).to(tl.float32)
            if POST:
                gradient += extra
        total = tl.load(s + where, mask=inside, other=0.0).to(tl.float32)
        normed, inverse = _normed(total, inside, width, eps, CENTRED)
        to_weight += gradient * normed
        to_bias += gradient
        gradient *= gain
        step = gradient - normed * (tl.sum(gradient * normed, 1) / width)[:, None]
        if CENTRED:
            step -= (tl.sum(gradient, 1) / width)[:, None]
        step *= inverse[:, None]
        if MORE and not POST:
            step += extra
        tl.store(dx + where, step.to(dx.dtype.element_ty), mask=inside)
        if DROP:
            step = tl.where(kept(key, r, dropped, ROWS, P), step * inverse_keep, 0.0)
            tl.store(dh + where, step.to(dh.dtype.element_ty), mask=inside)
        if SHIFT:
            to_shift += step
    own_sums = sums + tl.program_id(0) * (3 if SHIFT else 2) * width + at
    tl.store(own_sums, tl.sum(to_weight, 0), mask=at < width)
    tl.store(own_sums + width, tl.sum(to_bias, 0), mask=at < width)
    if SHIFT:
        tl.store(own_sums + 2 * width, tl.sum(to_shift, 0), mask=at < width)


@triton.jit
def add_kernel(
    x, h, seed, out, rows, width, dropped, inverse_keep, TO: tl.constexpr, ROWS: tl.constexpr, P: tl.constexpr
):
    """Compute some rows of x + dropout(h), or of dropout(h) alone."""
    r, at = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS + tl.arange(0, ROWS), tl.arange(0, P)
    inside = (r < rows)[:, None] & (at < width)[None, :]
    where = r.to(tl.int64)[:, None] * width + at[None, :]
    total = tl.load(h + where, mask=inside, other=0.0).to(tl.float32)
    total = tl.where(kept(tl.load(seed), r, dropped, ROWS, P), total * inverse_keep, 0.0)
    if TO:
        total += tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + where, total.to(out.dtype.element_ty), mask=inside)
