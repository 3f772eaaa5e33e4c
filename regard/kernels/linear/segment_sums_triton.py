"""Triton kernels for the states between the segments of a text: the sums of each segment, and their scan.

Katharopoulos et al. 2020, eqs. 18 and 19; F3. The same kernels serve keys in the forward pass and, from the end of the
text, queries in the backward pass (REVERSE): attention_triton.py explains the symmetry.

    C tokens of a chunk   d, e widths of keys and values   M rows of W   F features
"""

from __future__ import annotations

import triton
from triton import language as tl

from regard.kernels.linear.features_triton import (
    EMPTY,
    N,
    columns,
    gates,
    load_w,
    normal,
    phi,
    tile,
    to_state,
    weight_logs,
)
from regard.kernels.linear.without_wgmma import without_wgmma


@without_wgmma
@triton.jit(do_not_specialize=["heads", "shared", "n", "per"])
def sums(
    x, y,  # keys and values; with REVERSE queries and dy, without LOG_SCALES divided by the denominator
    c, log_g,  # of keys: logarithms that are added to their weights, and of their gates
    h, t, sign,  # of queries: logarithms of their weights, what they have where keys have 1, signs of their weights
    W, a,
    sum_of, log_scale_of, gate_of,  # (heads, places, F (e + 1)), (heads, places) twice: results, from place 1 on
    x_batch, x_head, x_row, y_batch, y_head, y_row, c_batch, c_head, g_batch, g_head, w_head, a_head,  # strides
    heads, shared, n, per,  # of x; heads of queries to one of keys; tokens; tokens of a segment
    factor, stretch, bend,
    MAP: tl.constexpr, SIGN: tl.constexpr, NORMALIZE: tl.constexpr, SCALED: tl.constexpr, GIVEN: tl.constexpr,
    GATED: tl.constexpr, SIGNED: tl.constexpr, REVERSE: tl.constexpr, BENT: tl.constexpr, LOG_SCALES: tl.constexpr,
    PRECISION: tl.constexpr,
    C: tl.constexpr, D: tl.constexpr, E: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """sum_j w_j phi(x_j) (y_j, 1 or t_j) over one segment of one head, times e^-log_scale."""
    PAIR: tl.constexpr = MAP == "hyperbolic" or MAP == "trig"
    F: tl.constexpr = 2 * M if PAIR else M
    segment, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    batch, head = row // heads, row % heads
    g = head // shared if REVERSE else head
    x += batch * x_batch + head * x_head
    y += batch * y_batch + head * y_head
    c += batch * c_batch + g * c_head
    log_g += batch * g_batch + g * g_head
    dtype = x.dtype.element_ty
    w, bias, scale = load_w(W + g * w_head, a + g * a_head, stretch, bend, M, D, MAP)
    w = w.to(dtype)

    # z is the sum of N columns, the least that matrix units take.
    S1, z1 = tl.zeros((M, E), tl.float32), tl.zeros((M, N), tl.float32)
    S2, z2 = tl.zeros((M, E), tl.float32), tl.zeros((M, N), tl.float32)
    log_scale, left = tl.full((), EMPTY if LOG_SCALES else 0.0, tl.float32), tl.zeros((), tl.float32)
    first = segment * per
    chunks = tl.cdiv(tl.minimum(n - first, per), C)
    for step in range(chunks):
        start = first + ((chunks - 1 - step) if REVERSE else step) * C
        at = start + tl.arange(0, C)
        inside = at < n
        keys = tile(x, start, x_row, inside, C, D)
        values = tile(y, start, y_row, inside, C, E)
        keys, half, _ = normal(keys, scale, NORMALIZE, SCALED)
        log_weights = weight_logs(half, c, h + row * n, at, inside, SIGN, not REVERSE, GIVEN, LOG_SCALES)
        k1, k2, log_weights = phi(keys, w, bias, log_weights, factor, 0, not REVERSE, MAP, BENT, LOG_SCALES, PRECISION)
        new = tl.full((C,), 1.0, tl.float32)
        if LOG_SCALES:
            b, gone = gates(log_g, at, inside, C, GATED)
            new, old, log_scale = to_state(log_weights, b, gone, log_scale, REVERSE, GATED)
            left += gone
            if SIGNED:
                new *= tl.load(sign + row * n + at, mask=inside, other=0.0)
            values = (values * new[:, None]).to(dtype)
            S1, z1, S2, z2 = S1 * old, z1 * old, S2 * old, z2 * old
        if REVERSE:
            new *= tl.load(t + row * n + at, mask=inside, other=0.0)
        k1, k2, ones = k1.to(dtype), k2.to(dtype), columns(new, C, dtype)
        S1 = tl.dot(k1, values, S1, input_precision=PRECISION)
        z1 = tl.dot(k1, ones, z1, input_precision=PRECISION)
        if PAIR:
            S2 = tl.dot(k2, values, S2, input_precision=PRECISION)
            z2 = tl.dot(k2, ones, z2, input_precision=PRECISION)

    segments = tl.num_programs(0)
    slot = row * (segments + 1) + (segments - segment if REVERSE else segment + 1)
    tl.store(log_scale_of + slot, log_scale)
    tl.store(gate_of + slot, left)
    own_sum = sum_of + slot * F * (E + 1)
    r, column = tl.arange(0, M), tl.arange(0, E)
    tl.store(own_sum + r[:, None] * E + column[None, :], S1)
    tl.store(own_sum + F * E + r, tl.sum(z1, 1))
    if PAIR:
        tl.store(own_sum + (M + r)[:, None] * E + column[None, :], S2)
        tl.store(own_sum + F * E + M + r, tl.sum(z2, 1))


@triton.jit
def state_of(sum_of, E: tl.constexpr, M: tl.constexpr, PAIR: tl.constexpr):
    """Load S and z of each half, (M, e) and (M, N), from the result of `scan`."""
    F: tl.constexpr = 2 * M if PAIR else M
    r, column = tl.arange(0, M), tl.arange(0, E)
    S1, z1 = tl.load(sum_of + r[:, None] * E + column[None, :]), tl.load(sum_of + F * E + r)
    S2, z2 = S1, z1
    if PAIR:
        S2, z2 = tl.load(sum_of + (M + r)[:, None] * E + column[None, :]), tl.load(sum_of + F * E + M + r)
    return S1, columns(z1, M, tl.float32), S2, columns(z2, M, tl.float32)


@triton.jit(do_not_specialize=["slots", "size"])
def scan(
    sum_of, log_scale_of, gate_of, log_scale_at, slots, size,
    GIVEN: tl.constexpr, LOG_SCALES: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Replace the sums of each segment by the state after it, for a block of numbers of one head.

    Slot 0 holds the state before the first segment, if there is one (GIVEN). Without LOG_SCALES, states are plain sums,
    and several slots are loaded at once: one after the other, each load would wait for the store before it.
    """
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = sum_of + row * slots * size + at
    log_scale_of, gate_of, log_scale_at = (
        log_scale_of + row * slots,
        gate_of + row * slots,
        log_scale_at + row * slots,
    )
    if GIVEN:
        state, log_scale = tl.load(here, mask=at < size, other=0.0), tl.load(log_scale_of)
    else:
        state, log_scale = tl.zeros((BLOCK,), tl.float32), tl.full((), EMPTY if LOG_SCALES else 0.0, tl.float32)
        tl.store(here, state, mask=at < size)
    tl.store(log_scale_at, log_scale)
    if LOG_SCALES:
        for slot in range(1, slots):
            here += size
            segment_sum = tl.load(here, mask=at < size, other=0.0)
            new, old = tl.load(log_scale_of + slot), log_scale + tl.load(gate_of + slot)
            log_scale = tl.maximum(old, new)
            state = state * tl.exp2(old - log_scale) + segment_sum * tl.exp2(new - log_scale)
            tl.store(here, state, mask=at < size)
            tl.store(log_scale_at + slot, log_scale)
    else:
        for first in range(1, slots, SLOTS):
            slot = first + tl.arange(0, SLOTS)
            inside = (slot < slots)[:, None] & (at < size)[None, :]
            where = here + slot[:, None] * size
            segment_sums = tl.load(where, mask=inside, other=0.0)  # (SLOTS, BLOCK)
            tl.store(where, state[None, :] + tl.cumsum(segment_sums, 0), mask=inside)
            tl.store(log_scale_at + slot, tl.zeros((SLOTS,), tl.float32), mask=slot < slots)
            state += tl.sum(segment_sums, 0)
