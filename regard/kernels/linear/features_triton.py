"""Device functions of the Triton kernels: features, their gradients, and weights inside a chunk.

F2, F3; regard/attention/linear/feature_maps.py has the maps as formulas. A tile of features is two halves, exp u and
exp -u or sin u and cos u, of the same u; for a map with one half the other is a copy that is not used. All kernels
use logarithms to base 2, because a GPU computes 2^x.

Weights and features of any size are represented as numbers * 2^log_scale (LOG_SCALES), and sums of them are rescaled
to a common log_scale, as flash attention does with its maxima. Where the host knows that nothing can overflow, a
token's weight is a factor of its features, every log_scale is 0, and only products remain.

    C tokens of a chunk   d width of queries and keys   M rows of W   u = W x
"""

from __future__ import annotations

import triton
from triton import language as tl

EMPTY: tl.constexpr = tl.constexpr(-1e30)  # as in state.py
SHORTEST: tl.constexpr = tl.constexpr(1e-6)  # as in features.py: shorter vectors are not normalised to length 1
N: tl.constexpr = tl.constexpr(8)  # columns of the narrowest tile of matrix units
LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def tile(start, first, stride, inside, C: tl.constexpr, WIDTH: tl.constexpr):
    """Load rows from `first` of a matrix as (C, WIDTH), with zeros outside."""
    return tl.load(places(start, first, stride, C, WIDTH), mask=inside[:, None], other=0.0)


@triton.jit
def places(start, first, stride, C: tl.constexpr, WIDTH: tl.constexpr):
    """Pointers to these rows: a 64-bit offset for the first, 32-bit offsets from there."""
    start += first.to(tl.int64) * stride
    return start + (tl.arange(0, C)[:, None] * stride + tl.arange(0, WIDTH)[None, :])


@triton.jit
def columns(x, ROWS: tl.constexpr, dtype: tl.constexpr):
    """x (ROWS,) as the sum of the columns of a matrix (ROWS, N): x rounded to dtype, the remainder, and zeros."""
    column = tl.arange(0, N)[None, :]
    rounded = x.to(dtype)
    rest = (x - rounded.to(tl.float32)).to(dtype)
    zeros = tl.zeros((ROWS, N), dtype)
    return tl.where(column == 0, rounded[:, None], tl.where(column == 1, rest[:, None], zeros))


@triton.jit
def load_w(W, a, stretch, bend, M: tl.constexpr, D: tl.constexpr, MAP: tl.constexpr):
    """Load W times the factors of x (M, d), the bias of u (M,), and a (d,), in float32.

    For exponential maps u is scaled to base 2.
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
    """Normalise x (C, d) if NORMALIZE; return it, |x|²/2 of the map's input (C,), and the factor that was applied (C,).

    Normalising the product instead would be equivalent but slow: matrix units and the sum of squares want x in
    different layouts of shared memory.
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
    else:  # all entries of `scale` are equal
        square *= tl.max(scale * scale, 0)
    return x, 0.5 * inverse * inverse * square, inverse


@triton.jit
def phi(
    x, w, bias, weight, factor,
    AXIS: tl.constexpr, KEYS: tl.constexpr, MAP: tl.constexpr, BENT: tl.constexpr, LOG_SCALES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Features of x (C, d) times 2^weight: both halves, (M, C) for AXIS 0 and (C, M) for AXIS 1, and log_scale (C,).

    To get both layouts, call this twice: one more product, but no transposition through shared memory.
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
    return numbers(u, bias, weight, factor, AXIS, KEYS, MAP, BENT, LOG_SCALES)


@triton.jit
def numbers(
    u, bias, weight, factor,
    AXIS: tl.constexpr, KEYS: tl.constexpr, MAP: tl.constexpr, BENT: tl.constexpr, LOG_SCALES: tl.constexpr,
):  # fmt: skip
    """Split phi 2^weight of u + bias into numbers * 2^log_scale: both halves of the numbers, and log_scale.

    The maximum that is divided out of a query's features is not part of its log_scale, since it cancels.
    """
    exponential: tl.constexpr = MAP == "hyperbolic" or MAP == "positive"
    if BENT:
        u += bias
    if LOG_SCALES and exponential:
        top = tl.max(tl.abs(u) if MAP == "hyperbolic" else u, AXIS)
        log_scale, exponent = weight + top if KEYS else weight, -top
    elif LOG_SCALES:
        log_scale, exponent = weight, tl.zeros_like(weight)
    else:
        log_scale, exponent = tl.zeros_like(weight), weight
    if exponential:
        exponent = tl.expand_dims(exponent + tl.log2(factor), AXIS)  # a 2^x = 2^{x + log a}
        phi1 = tl.exp2(exponent + u)
        phi2 = phi1
        if MAP == "hyperbolic":
            phi2 = tl.exp2(exponent - u)
    else:
        if MAP == "trig":
            phi1, phi2 = waves(u)
        else:
            phi1 = tl.where(u > 0, u + 1.0, tl.exp2(tl.minimum(u, 0.0) * LOG2E))
            phi2 = phi1
        scale_factor = tl.expand_dims(tl.exp2(exponent) * factor, AXIS)
        phi1, phi2 = phi1 * scale_factor, phi2 * scale_factor
    return phi1, phi2, log_scale


@triton.jit
def waves(u):
    """(sin u, cos u) by Taylor series of the remainder of u modulo pi / 2, where they are exact.

    Triton's own functions handle u of any size and are ten times as scale_factor code.
    """
    turns = tl.floor(u * 0.6366197723675814 + 0.5)
    r = (u - turns * 1.57079637050628662) + turns * 4.37113900018624e-8  # pi / 2 in two parts; |r| <= pi / 4
    r2 = r * r
    sine = r * (1.0 + r2 * (-1.0 / 6 + r2 * (1.0 / 120 + r2 * (-1.0 / 5040 + r2 * (1.0 / 362880)))))
    cosine = 1.0 + r2 * (-1.0 / 2 + r2 * (1.0 / 24 + r2 * (-1.0 / 720 + r2 * (1.0 / 40320))))
    quarter = turns.to(tl.int32)
    odd = (quarter & 1) != 0
    first_wave, second_wave = tl.where(odd, cosine, sine), tl.where(odd, sine, cosine)
    first_wave = tl.where((quarter & 2) != 0, -first_wave, first_wave)
    return first_wave, tl.where(((quarter + 1) & 2) != 0, -second_wave, second_wave)


@triton.jit
def to_u(phi1, phi2, d_phi1, d_phi2, MAP: tl.constexpr):
    """The gradient of u from those of the features: exp' = exp, sin' = cos, cos' = -sin."""
    if MAP == "hyperbolic":
        du = d_phi1 * phi1 - d_phi2 * phi2
    elif MAP == "positive":
        du = d_phi1 * phi1
    elif MAP == "trig":
        du = d_phi1 * phi2 - d_phi2 * phi1
    else:
        du = d_phi1 * tl.minimum(phi1, 1.0)
    return du


@triton.jit
def gates(log_g, at, inside, C: tl.constexpr, GATED: tl.constexpr):
    """Cumulative sums of the logarithms of a chunk's gates (C,), and their total."""
    if GATED:
        log = tl.load(log_g + at, mask=inside, other=0.0).to(tl.float32) * LOG2E
        b, total = tl.cumsum(log, 0), tl.sum(log, 0)
    else:
        b, total = tl.zeros((C,), tl.float32), 0.0
    return b, total


@triton.jit
def weight_logs(
    half, c, h, at, inside, SIGN: tl.constexpr, KEYS: tl.constexpr, GIVEN: tl.constexpr, LOG_SCALES: tl.constexpr
):  # fmt: skip
    """Logarithms of the tokens' weights (C,): for keys the map's weight plus c if GIVEN, for queries h.

    Without LOG_SCALES the weights of queries are already factors of dy and t: see `deltas`.
    """
    if KEYS:
        log_weights = half * (SIGN * LOG2E)
        if GIVEN:
            log_weights += tl.load(c + at, mask=inside, other=0.0) * LOG2E
        log_weights = tl.where(inside, log_weights, -float("inf"))
    elif LOG_SCALES:
        log_weights = tl.load(h + at, mask=inside, other=-float("inf"))
    else:
        log_weights = tl.zeros_like(half)
    return log_weights


@triton.jit
def causal(scores, masked_value, REVERSE: tl.constexpr, TURNED: tl.constexpr):
    """Replace scores of later tokens (REVERSE: earlier tokens) by `other`; (C queries, C keys), or TURNED."""
    at = tl.arange(0, scores.shape[0])
    if REVERSE != TURNED:
        seen = at[None, :] >= at[:, None]
    else:
        seen = at[None, :] <= at[:, None]
    return tl.where(seen, scores, masked_value)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def weights(c, b, total, log_scale, REVERSE: tl.constexpr, GATED: tl.constexpr, TURNED: tl.constexpr):
    """Weights of keys for queries inside a chunk (C, C) and of the state (C,), both times 2^-top; and top (C,).

    Forward, 2^{c_j + b_i - b_j} for j <= i; backward (REVERSE), with the gates after i up to j >= i.
    """
    mine, old = tl.zeros_like(c), tl.zeros_like(c) + log_scale
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
def to_state(c, b, total, log_scale, REVERSE: tl.constexpr, GATED: tl.constexpr):
    """Weights of the chunk's tokens in the state after it (C,), the weight of the old state, and the new log_scale."""
    if GATED:
        c += b if REVERSE else total - b
    old = log_scale + total
    log_scale = tl.maximum(old, tl.max(c, 0))
    return tl.exp2(c - log_scale), tl.exp2(old - log_scale), log_scale


@triton.jit
def shrink(before, dtype: tl.constexpr):
    """The factor of a state of so many chunks before it is rounded to float16, whose maximum is 65504."""
    if dtype == tl.float16:
        small = 1.0 / (1.0 + before)
    else:
        small = 1.0
    return small
