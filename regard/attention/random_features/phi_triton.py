"""What the walks along a text are made of, for Triton: features, their gradient, and weights inside a chunk.

F2, F3; maps.py has the maps as formulas. A tile of features is kept as two halves, exp u and exp -u or sin u and cos u,
each made of the same u; where a map has one half, the other is the same and nobody looks at it. Logarithms are to base
2 in all kernels, for 2^x is what a GPU computes.

    C tokens of a chunk   d width of queries and keys   M rows of W   u = W x
"""

from __future__ import annotations

import triton
from triton import language as tl

EMPTY: tl.constexpr = tl.constexpr(-1e30)  # as in state.py
SHORTEST: tl.constexpr = tl.constexpr(1e-6)  # as in features.py: what is shorter is not brought to length 1
LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def tile(start, at, stride, inside, WIDTH: tl.constexpr):
    """Rows of a matrix as (C, WIDTH), zeros where there are none."""
    where = at.to(tl.int64)[:, None] * stride + tl.arange(0, WIDTH)[None, :]
    return tl.load(start + where, mask=inside[:, None], other=0.0)


@triton.jit
def first_column(x, ROWS: tl.constexpr, N: tl.constexpr):
    """x (ROWS,) as the first column of a matrix (ROWS, N) of zeros."""
    return tl.where((tl.arange(0, N) == 0)[None, :], tl.broadcast_to(x[:, None], (ROWS, N)), 0.0)


@triton.jit
def load_w(W, a, stretch, bend, M: tl.constexpr, D: tl.constexpr, MAP: tl.constexpr):
    """W with all that x is multiplied by, (M, d), what is added to u, (M,), and a (d,), in float32.

    For maps of exponentials it is made such that u is to base 2.
    """
    if MAP == "elu":
        w, bias, scale = tl.zeros((M, D), tl.float32), tl.zeros((M,), tl.float32), tl.full((D,), 1.0, tl.float32)
    else:
        at = tl.arange(0, D)
        w = tl.load(W + tl.arange(0, M)[:, None] * D + at[None, :]).to(tl.float32)
        scale = tl.load(a + at).to(tl.float32)
        bias = tl.sum(w * w, 1) * bend * LOG2E
        w *= (scale * stretch)[None, :]
        if MAP != "trig":
            w *= LOG2E
    return w, bias, scale


@triton.jit
def lengths(x, scale, NORMALIZE: tl.constexpr, SCALED: tl.constexpr):
    """What brings x (C, d) to length 1, (C,), or 1; and |x|²/2 of what the map is given, (C,)."""
    x = x.to(tl.float32)
    square = tl.sum(x * x, 1)
    if NORMALIZE:
        inverse = 1.0 / tl.maximum(tl.sqrt(square), SHORTEST)
    else:
        inverse = tl.full((x.shape[0],), 1.0, tl.float32)
    if SCALED:
        x = x * scale[None, :]
        square = tl.sum(x * x, 1)
    else:  # all of `scale` is one number
        square *= tl.max(scale * scale, 0)
    return inverse, 0.5 * inverse * inverse * square


@triton.jit
def phi(
    x, w, bias, scale, factor,
    AXIS: tl.constexpr, MAP: tl.constexpr, NORMALIZE: tl.constexpr, SCALED: tl.constexpr, BENT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Features of x (C, d), (M, C) if they lie along axis 0, else (C, M): both halves, levels (C,), `lengths` of x.

    Who needs both forms calls this twice: a product more, but no tile is ever turned that was computed, for Triton up
    to 3.7.0 gets products with such tiles wrong on Hopper.
    """
    inverse, half = lengths(x, scale, NORMALIZE, SCALED)
    if MAP == "elu":
        if AXIS == 0:
            u = tl.trans(x).to(tl.float32)
        else:
            u = x.to(tl.float32)
    elif AXIS == 0:
        u = tl.dot(w, tl.trans(x), input_precision=PRECISION)
        bias = bias[:, None]
    else:
        u = tl.dot(x, tl.trans(w), input_precision=PRECISION)
        bias = bias[None, :]
    one, other, level = numbers(u, inverse, bias, factor, AXIS, MAP, BENT)
    return one, other, level, half, inverse


@triton.jit
def numbers(u, inverse, bias, factor, AXIS: tl.constexpr, MAP: tl.constexpr, BENT: tl.constexpr):
    """phi = numbers * 2^level of u * inverse + bias: both halves of the numbers, and the level; along the axis."""
    by = tl.expand_dims(inverse, AXIS)
    if MAP == "hyperbolic":
        level = tl.max(tl.abs(u), AXIS) * inverse
        under = tl.expand_dims(level - tl.log2(factor), AXIS)  # a 2^x = 2^{x + log a}
        one, other = tl.exp2(u * by - under), tl.exp2(u * -by - under)
    elif MAP == "positive":
        if BENT:
            u = u * by + bias
            level = tl.max(u, AXIS)
            one = tl.exp2(u - tl.expand_dims(level - tl.log2(factor), AXIS))
        else:
            level = tl.max(u, AXIS) * inverse
            one = tl.exp2(u * by - tl.expand_dims(level - tl.log2(factor), AXIS))
        other = one
    else:
        level = tl.zeros((u.shape[1 - AXIS],), tl.float32)
        if MAP == "trig":
            one, other = waves(u * by)
            one, other = one * factor, other * factor
        else:
            one = tl.where(u > 0, u + 1.0, tl.exp2(tl.minimum(u, 0.0) * LOG2E))
            other = one
    return one, other, level


@triton.jit
def waves(u):
    """(sin u, cos u), by what is left of u after whole quarter turns: Taylor's series are exact for that.

    Triton's own are made for u of any size, and are ten times as much code.
    """
    turns = tl.floor(u * 0.6366197723675814 + 0.5)
    r = (u - turns * 1.57079637050628662) + turns * 4.37113900018624e-8  # pi / 2 in two parts; |r| <= pi / 4
    r2 = r * r
    sine = r * (1.0 + r2 * (-1.0 / 6 + r2 * (1.0 / 120 + r2 * (-1.0 / 5040 + r2 * (1.0 / 362880)))))
    cosine = 1.0 + r2 * (-1.0 / 2 + r2 * (1.0 / 24 + r2 * (-1.0 / 720 + r2 * (1.0 / 40320))))
    quarter = turns.to(tl.int32)
    odd = (quarter & 1) != 0
    one, other = tl.where(odd, cosine, sine), tl.where(odd, sine, cosine)
    one = tl.where((quarter & 2) != 0, -one, one)
    return one, tl.where(((quarter + 1) & 2) != 0, -other, other)


@triton.jit
def to_u(one, other, to_one, to_other, MAP: tl.constexpr):
    """The gradient of u, of those of the numbers: exp' = exp, sin' = cos, cos' = -sin."""
    if MAP == "hyperbolic":
        du = to_one * one - to_other * other
    elif MAP == "positive":
        du = to_one * one
    elif MAP == "trig":
        du = to_one * other - to_other * one
    else:
        du = to_one * tl.minimum(one, 1.0)
    return du


@triton.jit
def gates(log_g, at, inside, C: tl.constexpr, GATED: tl.constexpr):
    """Of the logarithms of a chunk's gates the sums up to each, itself included, (C,), and the sum of all."""
    if GATED:
        log = tl.load(log_g + at, mask=inside, other=0.0).to(tl.float32) * LOG2E
        b, total = tl.cumsum(log, 0), tl.sum(log, 0)
    else:
        b, total = tl.zeros((C,), tl.float32), 0.0
    return b, total


@triton.jit
def weight_logs(
    level, half, c, h, at, inside, SIGN: tl.constexpr, KEYS: tl.constexpr, GIVEN: tl.constexpr
):  # fmt: skip
    """Logarithms of tokens' weights, (C,): of keys what the map says and what is given, c; of queries h."""
    if KEYS:
        own = level + half * (SIGN * LOG2E)
        if GIVEN:
            own += tl.load(c + at, mask=inside, other=0.0) * LOG2E
        own = tl.where(inside, own, -float("inf"))
    else:
        own = tl.load(h + at, mask=inside, other=-float("inf"))
    return own


@triton.jit
def weights(c, b, total, level, at, C: tl.constexpr, REVERSE: tl.constexpr, GATED: tl.constexpr):
    """How much each token of a chunk sees of each, (C, C), and of the state, (C,), times 2^-top; and top (C,).

    2^{c_j + b_i - b_j}, j <= i, when the text is walked forward; backward, the gates are those after i up to j >= i.
    """
    logs = tl.broadcast_to(c[None, :], (C, C))
    before = tl.zeros((C,), tl.float32) + level
    if REVERSE:
        seen = at[None, :] >= at[:, None]
        if GATED:
            logs += b[None, :] - b[:, None]
            before += total - b
    else:
        seen = at[None, :] <= at[:, None]
        if GATED:
            logs += b[:, None] - b[None, :]
            before += b
    logs = tl.where(seen, logs, -float("inf"))
    top = tl.maximum(tl.max(logs, 1), before)
    return tl.exp2(logs - top[:, None]), tl.exp2(before - top), top


@triton.jit
def to_state(c, b, total, level, REVERSE: tl.constexpr, GATED: tl.constexpr):
    """What the chunk's tokens count in the state after it, (C,), what the old state counts, and the new level."""
    if GATED:
        c += b if REVERSE else total - b
    old = level + total
    level = tl.maximum(old, tl.max(c, 0))
    return tl.exp2(c - level), tl.exp2(old - level), level


@triton.jit
def shrink(before, dtype: tl.constexpr):
    """What a state of so many chunks is multiplied by before it is rounded to float16, which ends at 65504."""
    if dtype == tl.float16:
        small = 1.0 / (1.0 + before)
    else:
        small = 1.0
    return small
