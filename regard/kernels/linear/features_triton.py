"""What the walks along a text are made of, for Triton: features, their gradient, and weights inside a chunk.

F2, F3; maps.py has the maps as formulas. A tile of features is kept as two halves, exp u and exp -u or sin u and cos u,
each made of the same u; where a map has one half, the other is the same and nobody looks at it. Logarithms are to base
2 in all kernels, for 2^x is what a GPU computes.

Weights and features that may be of any size are kept as numbers * 2^level (LEVELS), and sums of them are brought to one
level as flash attention does with its maxima. Where the host knows that nothing can overflow, a token's weight is a
factor of its features, every level is 0, and a walk is products and nothing else.

    C tokens of a chunk   d width of queries and keys   M rows of W   u = W x
"""

from __future__ import annotations

import triton
from triton import language as tl

EMPTY: tl.constexpr = tl.constexpr(-1e30)  # as in state.py
SHORTEST: tl.constexpr = tl.constexpr(1e-6)  # as in features.py: what is shorter is not brought to length 1
N: tl.constexpr = tl.constexpr(8)  # columns of the narrowest tile that matrix units take
LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def tile(start, first, stride, inside, C: tl.constexpr, WIDTH: tl.constexpr):
    """Rows from `first` on of a matrix as (C, WIDTH), zeros where there are none."""
    return tl.load(places(start, first, stride, C, WIDTH), mask=inside[:, None], other=0.0)


@triton.jit
def places(start, first, stride, C: tl.constexpr, WIDTH: tl.constexpr):
    """Where those rows lie: far from the start, but 32 bits are enough for the way from the first of them."""
    start += first.to(tl.int64) * stride
    return start + (tl.arange(0, C)[:, None] * stride + tl.arange(0, WIDTH)[None, :])


@triton.jit
def columns(x, ROWS: tl.constexpr, dtype: tl.constexpr):
    """x (ROWS,) as the sum of the columns of a matrix (ROWS, N): what rounding leaves of it, the rest, and zeros."""
    column = tl.arange(0, N)[None, :]
    rounded = x.to(dtype)
    rest = (x - rounded.to(tl.float32)).to(dtype)
    zeros = tl.zeros((ROWS, N), dtype)
    return tl.where(column == 0, rounded[:, None], tl.where(column == 1, rest[:, None], zeros))


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
def normal(x, scale, NORMALIZE: tl.constexpr, SCALED: tl.constexpr):
    """x (C, d) at length 1 if it is to be, |x|²/2 of what the map is given, (C,), and what brought it there, (C,).

    A product of x as it was, its result brought to length 1, would be as good, but would be slow: matrix units want x
    in an order in shared memory that sums of its squares do not want.
    """
    full = x.to(tl.float32)
    square = tl.sum(full * full, 1)
    inverse = tl.full((x.shape[0],), 1.0, tl.float32)
    if NORMALIZE:
        inverse = tl.rsqrt(tl.maximum(square, SHORTEST * SHORTEST))
        x = (full * inverse[:, None]).to(x.dtype)
    if SCALED:
        full *= scale[None, :]
        square = tl.sum(full * full, 1)
    else:  # all of `scale` is one number
        square *= tl.max(scale * scale, 0)
    return x, 0.5 * inverse * inverse * square, inverse


@triton.jit
def phi(
    x, w, bias, weight, factor,
    AXIS: tl.constexpr, KEYS: tl.constexpr, MAP: tl.constexpr, BENT: tl.constexpr, LEVELS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Features of x (C, d) times 2^weight, (M, C) if they lie along axis 0, else (C, M): both halves, levels (C,).

    Who needs both forms calls this twice: a product more, but no features must be turned by way of shared memory.
    """
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
    return numbers(u, bias, weight, factor, AXIS, KEYS, MAP, BENT, LEVELS)


@triton.jit
def numbers(
    u, bias, weight, factor,
    AXIS: tl.constexpr, KEYS: tl.constexpr, MAP: tl.constexpr, BENT: tl.constexpr, LEVELS: tl.constexpr,
):  # fmt: skip
    """phi 2^weight = numbers * 2^level of u + bias: both halves of the numbers, and the level.

    What is taken out of a query's features is not in its level, for it cancels in attention's quotient.
    """
    exponential: tl.constexpr = MAP == "hyperbolic" or MAP == "positive"
    if BENT:
        u += bias
    if LEVELS and exponential:
        top = tl.max(tl.abs(u) if MAP == "hyperbolic" else u, AXIS)
        level, more = weight + top if KEYS else weight, -top
    elif LEVELS:
        level, more = weight, tl.zeros_like(weight)
    else:
        level, more = tl.zeros_like(weight), weight
    if exponential:
        more = tl.expand_dims(more + tl.log2(factor), AXIS)  # a 2^x = 2^{x + log a}
        one = tl.exp2(more + u)
        other = one
        if MAP == "hyperbolic":
            other = tl.exp2(more - u)
    else:
        if MAP == "trig":
            one, other = waves(u)
        else:
            one = tl.where(u > 0, u + 1.0, tl.exp2(tl.minimum(u, 0.0) * LOG2E))
            other = one
        much = tl.expand_dims(tl.exp2(more) * factor, AXIS)
        one, other = one * much, other * much
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
    half, c, h, at, inside, SIGN: tl.constexpr, KEYS: tl.constexpr, GIVEN: tl.constexpr, LEVELS: tl.constexpr
):  # fmt: skip
    """Logarithms of tokens' weights, (C,): of keys what the map says and what is given, c; of queries h.

    Without LEVELS weights of queries are in dy and t already: see `deltas`.
    """
    if KEYS:
        own = half * (SIGN * LOG2E)
        if GIVEN:
            own += tl.load(c + at, mask=inside, other=0.0) * LOG2E
        own = tl.where(inside, own, -float("inf"))
    elif LEVELS:
        own = tl.load(h + at, mask=inside, other=-float("inf"))
    else:
        own = tl.zeros_like(half)
    return own


@triton.jit
def causal(scores, other, REVERSE: tl.constexpr, TURNED: tl.constexpr):
    """scores (C who ask, C who answer), or TURNED; `other` for tokens after the one who asks, REVERSE: before it."""
    at = tl.arange(0, scores.shape[0])
    if REVERSE != TURNED:
        seen = at[None, :] >= at[:, None]
    else:
        seen = at[None, :] <= at[:, None]
    return tl.where(seen, scores, other)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def weights(c, b, total, level, REVERSE: tl.constexpr, GATED: tl.constexpr, TURNED: tl.constexpr):
    """How much each token of a chunk sees of each, (C, C), and of the state, (C,), times 2^-top; and top (C,).

    2^{c_j + b_i - b_j}, j <= i, when the text is walked forward; backward, the gates are those after i up to j >= i.
    """
    mine, old = tl.zeros_like(c), tl.zeros_like(c) + level
    if GATED and REVERSE:
        c, mine, old = c + b, -b, old + total - b
    elif GATED:
        c, mine, old = c - b, b, old + b
    top = tl.maximum(tl.associative_scan(c, 0, larger, reverse=REVERSE) + mine, old)
    mine -= top
    if TURNED:
        logs = c[:, None] + mine[None, :]
    else:
        logs = c[None, :] + mine[:, None]
    return tl.exp2(causal(logs, -float("inf"), REVERSE, TURNED)), tl.exp2(old - top), top


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
