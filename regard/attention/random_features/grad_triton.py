"""Gradients of queries and keys in attention by features, as walks along the text; Triton, for NVIDIA GPUs.

F3. mix_triton.py has the formulas. The gradient of the features goes on through the map, the learned scale and the
normalisation, all in registers.

    C tokens of a chunk   d, e widths of keys and values   M rows of W   F features
"""

from __future__ import annotations

import triton
from triton import language as tl

from regard.attention.random_features.phi_triton import (
    EMPTY,
    SHORTEST,
    gates,
    load_w,
    phi,
    shrink,
    tile,
    to_state,
    to_u,
    weight_logs,
    weights,
)


@triton.jit(do_not_specialize=["heads", "m"])
def deltas(
    y, dy, top, den,  # as mix left them, and the gradient of y
    h, t, sign, fixed,  # results; the last: what a gate gets of a query whose denominator is the floor
    y_batch, y_head, y_row, d_batch, d_head, d_row,  # strides
    heads, m, floor,
    GATED: tl.constexpr, SIGNED: tl.constexpr, C: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """What queries stand for in the backward pass besides dy: weights e^h sign = 1 / (den e^top), and t = -dy.y."""
    row, at = tl.program_id(1).to(tl.int64), tl.program_id(0) * C + tl.arange(0, C)
    batch, head = row // heads, row % heads
    inside = at < m
    mine = tile(y + batch * y_batch + head * y_head, at, y_row, inside, E).to(tl.float32)
    given = tile(dy + batch * d_batch + head * d_head, at, d_row, inside, E).to(tl.float32)
    delta = tl.sum(mine * given, 1)
    at += row * m
    size = tl.load(den + at, mask=inside, other=1.0)
    level = tl.load(top + at, mask=inside, other=0.0)
    log = -level - tl.log2(tl.abs(size))
    tl.store(h + at, tl.where(level > 0.5 * EMPTY, log, -float("inf")), mask=inside)  # a query that saw nothing
    tl.store(t + at, tl.where(size == floor, 0.0, -delta), mask=inside)  # the floor has no gradient
    if SIGNED:
        tl.store(sign + at, tl.where(size < 0.0, -1.0, 1.0), mask=inside)
    if GATED:
        tl.store(fixed + at, tl.where(size == floor, delta, 0.0), mask=inside)


@triton.jit(do_not_specialize=["heads", "shared", "m", "n", "per", "places"])
def grad(
    x, y,  # those who ask: queries and dy; with REVERSE keys and values
    k, v,  # those who answer: keys and values; queries and dy
    c, log_g, h, t, sign, W, a,  # as in sums
    sum_at, level_at,  # states before the segments, as scan leaves them
    out, c_out, a_out,  # results: the gradients of x, of c, and of a in parts, one for each program
    x_batch, x_head, x_row, y_batch, y_head, y_row, k_batch, k_head, k_row, v_batch, v_head, v_row,  # strides
    o_batch, o_head, o_row, c_batch, c_head, g_batch, g_head, w_head, a_head,
    heads, shared, m, n, per, places,
    factor, stretch, bend,
    MAP: tl.constexpr, SIGN: tl.constexpr, NORMALIZE: tl.constexpr, SCALED: tl.constexpr, GIVEN: tl.constexpr,
    GATED: tl.constexpr, SIGNED: tl.constexpr, REVERSE: tl.constexpr, CAUSAL: tl.constexpr, STATES: tl.constexpr,
    LEARNED: tl.constexpr, BENT: tl.constexpr, PRECISION: tl.constexpr,
    C: tl.constexpr, D: tl.constexpr, E: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """One segment of one head of dq, or of dk. The state is held turned, (e, M), as it is needed here."""
    PAIR: tl.constexpr = MAP == "hyperbolic" or MAP == "trig"
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

    S1, z1 = tl.zeros((E, M), tl.float32), tl.zeros((M,), tl.float32)
    S2, z2 = tl.zeros((E, M), tl.float32), tl.zeros((M,), tl.float32)
    level, to_a = tl.full((), EMPTY, tl.float32), tl.zeros((D,), tl.float32)
    if STATES:
        place = (tl.num_programs(0) - 1 - segment if REVERSE else segment) if CAUSAL else places - 1
        place += (row if REVERSE else batch * (heads // shared) + g) * places
        level = tl.load(level_at + place)
        before = sum_at + place * F * (E + 1)
        r, column = tl.arange(0, M), tl.arange(0, E)
        S1, z1 = tl.load(before + r[None, :] * E + column[:, None]), tl.load(before + F * E + r)
        if PAIR:
            S2 = tl.load(before + (M + r)[None, :] * E + column[:, None])
            z2 = tl.load(before + F * E + M + r)
    first = segment * per
    chunks = tl.cdiv(tl.minimum(m - first, per), C)
    walked = (tl.cdiv(m - first, C) - chunks) if REVERSE else first // C  # by those before
    for step in range(chunks):
        at = first + ((chunks - 1 - step) if REVERSE else step) * C + tl.arange(0, C)
        inside = at < m
        given = tile(y, at, y_row, inside, E)
        if REVERSE:
            last = tl.full((C,), 1.0, tl.float32)
        else:
            last = tl.load(t + at, mask=inside, other=0.0)
        # dphi = sum_j weight_ij ((y_i, t_i).(v_j, t_j)) phi_j: first those in the state, then those in the chunk
        small = shrink(walked + step if CAUSAL else tl.cdiv(n, C), dtype)
        to1 = tl.dot(given, (S1 * small).to(dtype), input_precision=PRECISION) / small + last[:, None] * z1[None, :]
        if PAIR:
            to2 = tl.dot(given, (S2 * small).to(dtype), input_precision=PRECISION) / small + last[:, None] * z2[None, :]
        if CAUSAL:
            values = tile(v, at, v_row, inside, E)
            answers = tile(k, at, k_row, inside, D)
            k1, k2, top, half, _ = phi(answers, w, bias, scale, factor, 1, MAP, NORMALIZE, SCALED, BENT, PRECISION)
            own = weight_logs(top, half, c, h, at, inside, SIGN, not REVERSE, GIVEN)
            b, gone = gates(log_g, at, inside, C, GATED)
            seen, old, top = weights(own, b, gone, level, at, C, REVERSE, GATED)
            if SIGNED and REVERSE:
                signs = tl.load(sign + at, mask=inside, other=0.0)
                seen *= signs[None, :]
            products = tl.dot(given, tl.trans(values), input_precision=PRECISION)
            if REVERSE:
                others = tl.load(t + at, mask=inside, other=0.0)
                products += others[None, :]
            else:
                products += last[:, None]
            products = (products * seen).to(dtype)
            to1 = tl.dot(products, k1.to(dtype), to1 * old[:, None], input_precision=PRECISION)
            if PAIR:
                to2 = tl.dot(products, k2.to(dtype), to2 * old[:, None], input_precision=PRECISION)
            new, old, level = to_state(own, b, gone, level, REVERSE, GATED)
            if SIGNED and REVERSE:
                new *= signs
            turned = tl.trans(values)
            k1, k2 = k1 * new[:, None], k2 * new[:, None]
            S1 = tl.dot(turned, k1.to(dtype), S1 * old, input_precision=PRECISION)
            if PAIR:
                S2 = tl.dot(turned, k2.to(dtype), S2 * old, input_precision=PRECISION)
            if REVERSE:
                k1, k2 = k1 * others[:, None], k2 * others[:, None]
            z1 = z1 * old + tl.sum(k1, 0)
            if PAIR:
                z2 = z2 * old + tl.sum(k2, 0)
        else:
            top = tl.zeros((C,), tl.float32) + level

        # Through the map, the scale and the normalisation.
        asks = tile(x, at, x_row, inside, D)
        q1, q2, under, half, inverse = phi(asks, w, bias, scale, factor, 1, MAP, NORMALIZE, SCALED, BENT, PRECISION)
        size = tl.exp2(weight_logs(under, half, c, h, at, inside, SIGN, REVERSE, GIVEN) + top)
        if SIGNED and not REVERSE:
            size *= tl.load(sign + at, mask=inside, other=0.0)
        to1 *= size[:, None]
        to_c = tl.sum(to1 * q1, 1)
        if PAIR:
            to2 *= size[:, None]
            to_c += tl.sum(to2 * q2, 1)
        else:
            to2 = to1
        du = to_u(q1, q2, to1, to2, MAP)
        if MAP != "elu":
            du = tl.dot(du.to(dtype), rows, input_precision=PRECISION)
            normal = asks.to(tl.float32) * inverse[:, None]
            if REVERSE:
                du += (SIGN * to_c)[:, None] * (normal * scale[None, :])  # of e^{±|x|²/2}, which queries do without
            if LEARNED:
                to_a += tl.sum(du * normal, 0)
            du *= scale[None, :]
            if NORMALIZE:
                along = tl.sum(du * normal, 1)
                du = (du - tl.where(inverse * SHORTEST < 1.0, along, 0.0)[:, None] * normal) * inverse[:, None]
        where = at.to(tl.int64)[:, None] * o_row + tl.arange(0, D)[None, :]
        tl.store(out + where, du.to(out.dtype.element_ty), mask=inside[:, None])
        if REVERSE and GIVEN:
            tl.store(c_out + row * m + at, to_c, mask=inside)
    if LEARNED:
        tl.store(a_out + (row * tl.num_programs(0) + segment) * D + tl.arange(0, D), to_a)
