"""Triton kernels for the gradients of queries and keys in random-feature attention.

F3. attention_triton.py has the formulas. The gradient of the features is propagated through the map, the learned scale
and the normalisation in registers.

    C tokens of a chunk   d, e widths of keys and values   M rows of W   F features
"""

from __future__ import annotations

import triton
from triton import language as tl

from regard.kernels.linear.features_triton import (
    EMPTY,
    SHORTEST,
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
    to_u,
    weight_logs,
    weights,
)
from regard.kernels.linear.segment_sums_triton import state_of
from regard.kernels.linear.without_wgmma import without_wgmma


@triton.jit(do_not_specialize=["heads", "m"])
def deltas(
    y, dy, top, den,  # results of mix, and the gradient of y
    h, t, sign, fixed, out,  # results; `fixed`: gradients of gates from queries whose denominator is the floor
    y_batch, y_head, y_row, d_batch, d_head, d_row, o_batch, o_head, o_row,  # strides
    heads, m, floor,
    GATED: tl.constexpr, SIGNED: tl.constexpr, LOG_SCALES: tl.constexpr, C: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """What queries carry in the backward pass besides dy: weights 2^h sign = 1 / (den 2^top), and t = -dy.y.

    Without LOG_SCALES both are divided by the denominator here: dy / den, which is written, and t / den.
    """
    row, start = tl.program_id(1).to(tl.int64), tl.program_id(0) * C
    at = start + tl.arange(0, C)
    batch, head = row // heads, row % heads
    inside = at < m
    mine = tile(y + batch * y_batch + head * y_head, start, y_row, inside, C, E).to(tl.float32)
    grad_out = tile(dy + batch * d_batch + head * d_head, start, d_row, inside, C, E).to(tl.float32)
    delta = tl.sum(mine * grad_out, 1)
    at += row * m
    size = tl.load(den + at, mask=inside, other=1.0)
    last = tl.where(size == floor, 0.0, -delta)  # the floor has no gradient
    if LOG_SCALES:
        log_scale = tl.load(top + at, mask=inside, other=0.0)
        log = -log_scale - tl.log2(tl.abs(size))
        tl.store(h + at, tl.where(log_scale > 0.5 * EMPTY, log, -float("inf")), mask=inside)  # a query without keys
    else:
        grad_out, last = grad_out / size[:, None], last / size
        out += batch * o_batch + head * o_head
        tl.store(places(out, start, o_row, C, E), grad_out.to(out.dtype.element_ty), mask=inside[:, None])
    tl.store(t + at, last, mask=inside)
    if SIGNED:
        tl.store(sign + at, tl.where(size < 0.0, -1.0, 1.0), mask=inside)
    if GATED:
        tl.store(fixed + at, tl.where(size == floor, delta, 0.0), mask=inside)


@without_wgmma
@triton.jit(do_not_specialize=["heads", "shared", "m", "n", "per", "states"])
def grad(
    x, y,  # asking tokens: queries and dy, without LOG_SCALES divided by the denominator; with REVERSE keys and values
    k, v,  # answering tokens: keys and values; queries and dy
    c, log_g, h, t, sign, W, a,  # as in sums
    sum_at, log_scale_at,  # states before the segments, as scan leaves them
    out, c_out, a_out,  # results: the gradients of x, of c, and of a, the last one as partial sums of each program
    x_batch, x_head, x_row, y_batch, y_head, y_row, k_batch, k_head, k_row, v_batch, v_head, v_row,  # strides
    o_batch, o_head, o_row, c_batch, c_head, g_batch, g_head, w_head, a_head,
    heads, shared, m, n, per, states,
    factor, stretch, bend,
    MAP: tl.constexpr, SIGN: tl.constexpr, NORMALIZE: tl.constexpr, SCALED: tl.constexpr, GIVEN: tl.constexpr,
    GATED: tl.constexpr, SIGNED: tl.constexpr, REVERSE: tl.constexpr, CAUSAL: tl.constexpr, STATES: tl.constexpr,
    LEARNED: tl.constexpr, BENT: tl.constexpr, LOG_SCALES: tl.constexpr, PRECISION: tl.constexpr,
    C: tl.constexpr, D: tl.constexpr, E: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """Compute one segment of one head of dq, or of dk. Asking tokens are on axis 1, so features stay in registers."""
    PAIR: tl.constexpr = MAP == "hyperbolic" or MAP == "trig"
    # Keys' weights e^{±|x|²/2} have gradients along x, which normalisation removes unless x is scaled after it.
    WEIGHED: tl.constexpr = REVERSE and SIGN != 0.0 and (SCALED or not NORMALIZE)
    F: tl.constexpr = 2 * M if PAIR else M
    segment, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    batch, head = row // heads, row % heads
    g = head // shared
    x += batch * x_batch + (g if REVERSE else head) * x_head
    y += batch * y_batch + (g if REVERSE else head) * y_head
    k += batch * k_batch + (head if REVERSE else g) * k_head
    v += batch * v_batch + (head if REVERSE else g) * v_head
    out += batch * o_batch + head * o_head
    c += batch * c_batch + g * c_head
    log_g += batch * g_batch + g * g_head
    queries = row * (n if REVERSE else m)
    h, t, sign = h + queries, t + queries, sign + queries
    dtype = x.dtype.element_ty
    w, bias, scale = load_w(W + g * w_head, a + g * a_head, stretch, bend, M, D, MAP)
    w = w.to(dtype)
    if MAP != "elu":  # du/dx before the scale
        rows = tl.load(W + g * w_head + tl.arange(0, M)[:, None] * D + tl.arange(0, D)[None, :]).to(tl.float32)
        rows = (rows * stretch).to(dtype)

    S1, z1 = tl.zeros((M, E), tl.float32), tl.zeros((M, N), tl.float32)
    S2, z2 = tl.zeros((M, E), tl.float32), tl.zeros((M, N), tl.float32)
    log_scale, to_a = tl.full((), EMPTY, tl.float32), tl.zeros((D,), tl.float32)
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
        grad_out = tl.trans(tile(y, start, y_row, inside, C, E))  # (e, C)
        last = tl.full((C,), 1.0, tl.float32)
        if not REVERSE:
            last = tl.load(t + at, mask=inside, other=0.0)
        # dphi = sum_j weight_ij ((y_i, t_i).(v_j, t_j)) phi_j, (M, C): first of those in the state, then in the chunk
        small = shrink(walked + step if CAUSAL else tl.cdiv(n, C), dtype)
        to1 = tl.dot((S1 * small).to(dtype), grad_out, input_precision=PRECISION) / small
        to1 += tl.sum(z1, 1)[:, None] * last[None, :]
        if PAIR:
            to2 = tl.dot((S2 * small).to(dtype), grad_out, input_precision=PRECISION) / small
            to2 += tl.sum(z2, 1)[:, None] * last[None, :]
        top = tl.zeros((C,), tl.float32)
        if LOG_SCALES:
            top += log_scale
        if CAUSAL:
            values = tile(v, start, v_row, inside, C, E)
            products = tl.dot(values, grad_out, input_precision=PRECISION)  # (C answering, C asking)
            new = tl.full((C,), 1.0, tl.float32)
            if REVERSE:
                others = tl.load(t + at, mask=inside, other=0.0)
                products += others[:, None]
            else:
                others = new
                products += last[None, :]
            answers, half, _ = normal(tile(k, start, k_row, inside, C, D), scale, NORMALIZE, SCALED)
            log_weights = weight_logs(half, c, h, at, inside, SIGN, not REVERSE, GIVEN, LOG_SCALES)
            k1, k2, log_weights = phi(
                answers, w, bias, log_weights, factor, 0, not REVERSE, MAP, BENT, LOG_SCALES, PRECISION
            )
            if LOG_SCALES:
                b, gone = gates(log_g, at, inside, C, GATED)
                seen, old, top = weights(log_weights, b, gone, log_scale, REVERSE, GATED, True)
                new, decay, log_scale = to_state(log_weights, b, gone, log_scale, REVERSE, GATED)
                if SIGNED and REVERSE:
                    signs = tl.load(sign + at, mask=inside, other=0.0)
                    seen *= signs[:, None]
                    new *= signs
                products *= seen
                to1 *= old[None, :]
                if PAIR:
                    to2 *= old[None, :]
                S1, z1, S2, z2 = S1 * decay, z1 * decay, S2 * decay, z2 * decay
            else:
                products = causal(products, 0.0, REVERSE, True)
            products, k1, k2, each = products.to(dtype), k1.to(dtype), k2.to(dtype), columns(new * others, C, dtype)
            to1 = tl.dot(k1, products, to1, input_precision=PRECISION)
            if PAIR:
                to2 = tl.dot(k2, products, to2, input_precision=PRECISION)
            # The values are loaded a second time for the other product: kept, they would take 64 registers. The hint
            # prevents the compiler from merging both loads.
            again = tl.load(
                places(v, start, v_row, C, E), mask=inside[:, None], other=0.0, eviction_policy="evict_first"
            )
            if LOG_SCALES:
                again = (again * new[:, None]).to(dtype)
            S1 = tl.dot(k1, again, S1, input_precision=PRECISION)
            z1 = tl.dot(k1, each, z1, input_precision=PRECISION)
            if PAIR:
                S2 = tl.dot(k2, again, S2, input_precision=PRECISION)
                z2 = tl.dot(k2, each, z2, input_precision=PRECISION)

        # Through the map, the scale and the normalisation.
        asks = tile(x, start, x_row, inside, C, D)
        unit, half, inverse = normal(asks, scale, NORMALIZE, SCALED)
        mine = weight_logs(half, c, h, at, inside, SIGN, REVERSE, GIVEN, LOG_SCALES)
        q1, q2, mine = phi(unit, w, bias, mine, factor, 0, REVERSE, MAP, BENT, LOG_SCALES, PRECISION)
        if LOG_SCALES:
            size = tl.exp2(mine + top)
            if SIGNED and not REVERSE:
                size *= tl.load(sign + at, mask=inside, other=0.0)
            to1 *= size[None, :]
            if PAIR:
                to2 *= size[None, :]
        if not PAIR:
            to2 = to1
        du = to_u(q1, q2, to1, to2, MAP)
        if WEIGHED or (REVERSE and GIVEN):
            to_c = tl.sum(to1 * q1, 0)
            if PAIR:
                to_c += tl.sum(to2 * q2, 0)
            if GIVEN:
                tl.store(c_out + row * m + at, to_c, mask=inside)
        du = tl.trans(du)  # (C, M): the only tile that is transposed after it was computed; see without_wgmma.py
        if MAP != "elu":
            du = tl.dot(du.to(dtype), rows, input_precision=PRECISION)  # (C, d)
            full = asks.to(tl.float32) * inverse[:, None]
            if WEIGHED:
                du += (SIGN * to_c)[:, None] * (full * scale[None, :])
            if LEARNED:
                to_a += tl.sum(du * full, 0)
            du *= scale[None, :]
            if NORMALIZE:
                along = tl.where(inverse * SHORTEST < 0.9999, tl.sum(du * full, 1), 0.0)  # too short to be normalised
                du = (du - along[:, None] * full) * inverse[:, None]
        tl.store(places(out, start, o_row, C, D), du.to(out.dtype.element_ty), mask=inside[:, None])
    if LEARNED:
        tl.store(a_out + (row * tl.num_programs(0) + segment) * D + tl.arange(0, D), to_a)
