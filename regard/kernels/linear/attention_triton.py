"""The Triton kernel of random-feature attention: it goes along the text in chunks, with the sums in registers.

F3. Katharopoulos et al. 2020, eqs. 9 to 15. chunked.py has the same formulas in PyTorch. A key carries (v_j, 1),
whose last number gives the denominator; in the backward pass a query carries (dy_i, -dy_i.y_i). Then

    num_i, den_i = sum_{j<=i} e^{c_j + b_i - b_j}        (phi(q_i).phi(k_j)) (v_j, 1)               here
    dv_j         = sum_{i>=j} e^{c_j + b_i - b_j + h_i}  (phi(q_i).phi(k_j)) dy_i                   here, REVERSE
    dphi(q_i)    = sum_{j<=i} e^{c_j + b_i - b_j + h_i}  ((dy_i, -dy_i.y_i).(v_j, 1)) phi(k_j)      gradients_triton.py
    dphi(k_j)    = sum_{i>=j} e^{c_j + b_i - b_j + h_i}  ((dy_i, -dy_i.y_i).(v_j, 1)) phi(q_i)      the same, REVERSE

with c_j the logarithm of a key's weight, b_i the sum of the logarithms of the gates up to i, and h_i = -log den_i. So
the backward pass is the forward pass from the end of the text with queries and keys exchanged (REVERSE): "asking"
tokens receive a sum over "answering" tokens.

    C tokens of a chunk   d, e widths of keys and values   M rows of W   F features
"""

from __future__ import annotations

import triton
from triton import language as tl

from regard.kernels.linear.features_triton import (
    EMPTY,
    N,
    causal,
    columns,
    gates,
    load_w,
    normal,
    phi,
    places,
    shrink,
    tile,
    to_state,
    weight_logs,
    weights,
)
from regard.kernels.linear.segment_sums_triton import state_of
from regard.kernels.linear.without_wgmma import without_wgmma


@without_wgmma
@triton.jit(do_not_specialize=["heads", "shared", "m", "n", "per", "states"])
def mix(
    x,  # asking tokens: queries; with REVERSE keys
    k, v,  # answering tokens: keys and values; queries and dy, without LOG_SCALES divided by the denominator
    c, log_g, h, sign, W, a,  # as in sums
    sum_at, log_scale_at,  # states before the segments, as scan leaves them
    out, top_out, den_out,  # results; the last two only forward: the denominator is den 2^top
    x_batch, x_head, x_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,  # strides
    c_batch, c_head, g_batch, g_head, w_head, a_head,
    heads, shared, m, n, per, states,  # query heads; asking and answering tokens; states of a head
    factor, stretch, bend, floor,
    MAP: tl.constexpr, SIGN: tl.constexpr, NORMALIZE: tl.constexpr, SCALED: tl.constexpr, GIVEN: tl.constexpr,
    GATED: tl.constexpr, SIGNED: tl.constexpr, REVERSE: tl.constexpr, CAUSAL: tl.constexpr, STATES: tl.constexpr,
    BENT: tl.constexpr, LOG_SCALES: tl.constexpr, PRECISION: tl.constexpr,
    C: tl.constexpr, D: tl.constexpr, E: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """Compute one segment of one head of the output, or of dv; without CAUSAL every token reads the last state."""
    PAIR: tl.constexpr = MAP == "hyperbolic" or MAP == "trig"
    F: tl.constexpr = 2 * M if PAIR else M
    segment, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    batch, head = row // heads, row % heads
    g = head // shared
    x += batch * x_batch + (g if REVERSE else head) * x_head
    k += batch * k_batch + (head if REVERSE else g) * k_head
    v += batch * v_batch + (head if REVERSE else g) * v_head
    out += batch * o_batch + head * o_head
    c += batch * c_batch + g * c_head
    log_g += batch * g_batch + g * g_head
    dtype = x.dtype.element_ty
    w, bias, scale = load_w(W + g * w_head, a + g * a_head, stretch, bend, M, D, MAP)
    w = w.to(dtype)

    S1, z1 = tl.zeros((M, E), tl.float32), tl.zeros((M, N), tl.float32)
    S2, z2 = tl.zeros((M, E), tl.float32), tl.zeros((M, N), tl.float32)
    log_scale = tl.full((), EMPTY, tl.float32)
    if STATES:
        slot = (tl.num_programs(0) - 1 - segment if REVERSE else segment) if CAUSAL else states - 1
        slot += (row if REVERSE else batch * (heads // shared) + g) * states
        log_scale = tl.load(log_scale_at + slot)
        S1, z1, S2, z2 = state_of(sum_at + slot * F * (E + 1), E, M, PAIR)
    first = segment * per
    chunks = tl.cdiv(tl.minimum(m - first, per), C)
    walked = (tl.cdiv(m - first, C) - chunks) if REVERSE else first // C  # by the programs before
    for step in range(chunks):
        start = first + ((chunks - 1 - step) if REVERSE else step) * C
        at = start + tl.arange(0, C)
        inside = at < m
        # Everything for shared memory, the old state and the keys, goes there at once, to save barriers.
        small = shrink(walked + step if CAUSAL else tl.cdiv(n, C), dtype)
        s1, s2, y1, y2 = (S1 * small).to(dtype), (S2 * small).to(dtype), (z1 * small).to(dtype), (z2 * small).to(dtype)
        asks, half, _ = normal(tile(x, start, x_row, inside, C, D), scale, NORMALIZE, SCALED)
        mine = tl.zeros((C,), tl.float32)
        if REVERSE:
            mine = weight_logs(half, c, h, at, inside, SIGN, True, GIVEN, LOG_SCALES)
        if CAUSAL:
            keys, half, _ = normal(tile(k, start, k_row, inside, C, D), scale, NORMALIZE, SCALED)
            log_weights = weight_logs(half, c, h + row * n, at, inside, SIGN, not REVERSE, GIVEN, LOG_SCALES)
            k1, k2, log_weights = phi(
                keys, w, bias, log_weights, factor, 0, not REVERSE, MAP, BENT, LOG_SCALES, PRECISION
            )
            k1, k2 = k1.to(dtype), k2.to(dtype)

        q1, q2, mine = phi(asks, w, bias, mine, factor, 1, REVERSE, MAP, BENT, LOG_SCALES, PRECISION)
        q1, q2 = q1.to(dtype), q2.to(dtype)
        num = tl.dot(q1, s1, input_precision=PRECISION)
        if PAIR:
            num = tl.dot(q2, s2, num, input_precision=PRECISION)
        num = num / small
        if not REVERSE:
            ones = tl.dot(q1, y1, input_precision=PRECISION)
            if PAIR:
                ones = tl.dot(q2, y2, ones, input_precision=PRECISION)
            ones = ones / small

        top = tl.zeros((C,), tl.float32)
        if LOG_SCALES:
            top += log_scale
        if CAUSAL:
            scores = tl.dot(q1, k1, input_precision=PRECISION)
            if PAIR:
                scores = tl.dot(q2, k2, scores, input_precision=PRECISION)
            values = tile(v, start, v_row, inside, C, E)
            weighed, new = values, tl.full((C,), 1.0, tl.float32)
            if LOG_SCALES:
                b, gone = gates(log_g, at, inside, C, GATED)
                seen, old, top = weights(log_weights, b, gone, log_scale, REVERSE, GATED, False)
                new, decay, log_scale = to_state(log_weights, b, gone, log_scale, REVERSE, GATED)
                if SIGNED:
                    signs = tl.load(sign + row * n + at, mask=inside, other=0.0)
                    seen *= signs[None, :]
                    new *= signs
                scores *= seen
                num *= old[:, None]
                if not REVERSE:
                    ones *= old[:, None]
                weighed = (values * new[:, None]).to(dtype)
                S1, z1, S2, z2 = S1 * decay, z1 * decay, S2 * decay, z2 * decay
            else:
                scores = causal(scores, 0.0, REVERSE, False)
            scores = scores.to(dtype)
            num = tl.dot(scores, values, num, input_precision=PRECISION)
            S1 = tl.dot(k1, weighed, S1, input_precision=PRECISION)
            if PAIR:
                S2 = tl.dot(k2, weighed, S2, input_precision=PRECISION)
            if not REVERSE:
                each = columns(tl.full((C,), 1.0, tl.float32), C, dtype)
                ones = tl.dot(scores, each, ones, input_precision=PRECISION)
                each = columns(new, C, dtype)
                z1 = tl.dot(k1, each, z1, input_precision=PRECISION)
                if PAIR:
                    z2 = tl.dot(k2, each, z2, input_precision=PRECISION)

        if not REVERSE:
            den = tl.sum(ones, 1)
            den = tl.where(tl.abs(den) < floor, floor, den)
            num *= (1.0 / den)[:, None]
            tl.store(den_out + row * m + at, den, mask=inside)
            if LOG_SCALES:
                tl.store(top_out + row * m + at, top, mask=inside)
        elif LOG_SCALES:
            num *= tl.exp2(mine + top)[:, None]
        tl.store(places(out, start, o_row, C, E), num.to(out.dtype.element_ty), mask=inside[:, None])
