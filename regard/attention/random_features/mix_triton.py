"""Attention by features as a walk along the text, chunk by chunk, with the sums in registers; Triton, for NVIDIA GPUs.

F3. Katharopoulos et al. 2020, eqs. 9 to 15. chunked.py has the same formulas in PyTorch. A key stands for (v_j, 1),
whose last number gives the denominator; in the backward pass a query stands for (dy_i, -dy_i.y_i). Then

    num_i, den_i = sum_{j<=i} e^{c_j + b_i - b_j}        (phi(q_i).phi(k_j)) (v_j, 1)               here
    dv_j         = sum_{i>=j} e^{c_j + b_i - b_j + h_i}  (phi(q_i).phi(k_j)) dy_i                   here, REVERSE
    dphi(q_i)    = sum_{j<=i} e^{c_j + b_i - b_j + h_i}  ((dy_i, -dy_i.y_i).(v_j, 1)) phi(k_j)      in grad_triton.py
    dphi(k_j)    = sum_{i>=j} e^{c_j + b_i - b_j + h_i}  ((dy_i, -dy_i.y_i).(v_j, 1)) phi(q_i)      there, REVERSE

with c_j the logarithm of a key's weight, b_i the sum of those of the gates up to i, and h_i = -log den_i. So the
backward pass is the forward pass read from the end, where keys ask and queries answer.

    C tokens of a chunk   d, e widths of keys and values   M rows of W   F features
"""

from __future__ import annotations

import triton
from triton import language as tl

from regard.attention.random_features.phi_triton import (
    EMPTY,
    first_column,
    gates,
    load_w,
    phi,
    shrink,
    tile,
    to_state,
    weight_logs,
    weights,
)


@triton.jit(do_not_specialize=["heads", "shared", "m", "n", "per", "places"])
def mix(
    x,  # those who ask: queries; with REVERSE keys
    k, v,  # those who answer: keys and values; queries and dy
    c, log_g, h, sign, W, a,  # as in sums
    sum_at, level_at,  # states before the segments, as scan leaves them
    out, top_out, den_out,  # results; the last two only forward: den is to be multiplied by e^top
    x_batch, x_head, x_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,  # strides
    c_batch, c_head, g_batch, g_head, w_head, a_head,
    heads, shared, m, n, per, places,  # heads of queries; tokens that ask and that answer; places of a head's states
    factor, stretch, bend, floor,
    MAP: tl.constexpr, SIGN: tl.constexpr, NORMALIZE: tl.constexpr, SCALED: tl.constexpr, GIVEN: tl.constexpr,
    GATED: tl.constexpr, SIGNED: tl.constexpr, REVERSE: tl.constexpr, CAUSAL: tl.constexpr, STATES: tl.constexpr,
    BENT: tl.constexpr, PRECISION: tl.constexpr, C: tl.constexpr, D: tl.constexpr, E: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """One segment of one head of the output, or of dv; without CAUSAL all is read from the last state."""
    PAIR: tl.constexpr = MAP == "hyperbolic" or MAP == "trig"
    F: tl.constexpr = 2 * M if PAIR else M
    N: tl.constexpr = 16
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

    # z is the first of N columns, for matrix units know no less, and the others are zero.
    S1, z1 = tl.zeros((M, E), tl.float32), tl.zeros((M, N), tl.float32)
    S2, z2 = tl.zeros((M, E), tl.float32), tl.zeros((M, N), tl.float32)
    level = tl.full((), EMPTY, tl.float32)
    if STATES:
        place = (tl.num_programs(0) - 1 - segment if REVERSE else segment) if CAUSAL else places - 1
        place += (row if REVERSE else batch * (heads // shared) + g) * places
        level = tl.load(level_at + place)
        before = sum_at + place * F * (E + 1)
        r, column = tl.arange(0, M), tl.arange(0, E)
        S1, z1 = tl.load(before + r[:, None] * E + column[None, :]), first_column(tl.load(before + F * E + r), M, N)
        if PAIR:
            S2 = tl.load(before + (M + r)[:, None] * E + column[None, :])
            z2 = first_column(tl.load(before + F * E + M + r), M, N)
    first = segment * per
    chunks = tl.cdiv(tl.minimum(m - first, per), C)
    walked = (tl.cdiv(m - first, C) - chunks) if REVERSE else first // C  # by those before
    for step in range(chunks):
        at = first + ((chunks - 1 - step) if REVERSE else step) * C + tl.arange(0, C)
        inside = at < m
        # The state is taken as it was, and moves on as soon as there are keys: so the least is held at one time.
        small = shrink(walked + step if CAUSAL else tl.cdiv(n, C), dtype)
        s1, s2, y1, y2 = (S1 * small).to(dtype), (S2 * small).to(dtype), (z1 * small).to(dtype), (z2 * small).to(dtype)
        if CAUSAL:
            values = tile(v, at, v_row, inside, E)
            keys = tile(k, at, k_row, inside, D)
            k1, k2, top, half, _ = phi(keys, w, bias, scale, factor, 0, MAP, NORMALIZE, SCALED, BENT, PRECISION)
            own = weight_logs(top, half, c, h + row * n, at, inside, SIGN, not REVERSE, GIVEN)
            b, gone = gates(log_g, at, inside, C, GATED)
            new, kept, later = to_state(own, b, gone, level, REVERSE, GATED)
            if SIGNED:
                signs = tl.load(sign + row * n + at, mask=inside, other=0.0)
                new *= signs
            k1, k2 = k1.to(dtype), k2.to(dtype)
            weighed = (values * new[:, None]).to(dtype)
            S1 = tl.dot(k1, weighed, S1 * kept, input_precision=PRECISION)
            if PAIR:
                S2 = tl.dot(k2, weighed, S2 * kept, input_precision=PRECISION)
            if not REVERSE:
                one = first_column(new, C, N).to(dtype)
                z1 = tl.dot(k1, one, z1 * kept, input_precision=PRECISION)
                if PAIR:
                    z2 = tl.dot(k2, one, z2 * kept, input_precision=PRECISION)

        asks = tile(x, at, x_row, inside, D)
        q1, q2, under, half, _ = phi(asks, w, bias, scale, factor, 1, MAP, NORMALIZE, SCALED, BENT, PRECISION)
        if REVERSE:
            mine = weight_logs(under, half, c, h, at, inside, SIGN, True, GIVEN)
        q1, q2 = q1.to(dtype), q2.to(dtype)
        num = tl.dot(q1, s1, input_precision=PRECISION)
        if PAIR:
            num = tl.dot(q2, s2, num, input_precision=PRECISION)
        num = num / small
        if not REVERSE:
            ones = tl.dot(q1, y1, input_precision=PRECISION)
            if PAIR:
                ones = tl.dot(q2, y2, ones, input_precision=PRECISION)
            den = tl.sum(ones, 1) / small

        if CAUSAL:
            scores = tl.dot(q1, k1, input_precision=PRECISION)
            if PAIR:
                scores = tl.dot(q2, k2, scores, input_precision=PRECISION)
            seen, old, top = weights(own, b, gone, level, at, C, REVERSE, GATED)
            scores *= seen
            if SIGNED:
                scores *= signs[None, :]
            if not REVERSE:
                den = tl.sum(scores, 1) + den * old
            num = tl.dot(scores.to(dtype), values, num * old[:, None], input_precision=PRECISION)
            level = later
        else:
            top = tl.zeros((C,), tl.float32) + level
        if REVERSE:
            num *= tl.exp2(mine + top)[:, None]
        else:
            den = tl.where(tl.abs(den) < floor, floor, den)
            num *= (1.0 / den)[:, None]
            tl.store(top_out + row * m + at, top, mask=inside)
            tl.store(den_out + row * m + at, den, mask=inside)
        where = at.to(tl.int64)[:, None] * o_row + tl.arange(0, E)[None, :]
        tl.store(out + where, num.to(out.dtype.element_ty), mask=inside[:, None])
