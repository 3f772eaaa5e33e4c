"""The kernels of a decoder's step on a GPU, in Triton: few, so that a step of a small model is not a hundred waits.

E3, E4, E6. At one row a step does next to no work; what takes time is one kernel waiting for the other. So a norm is
part of the product that follows it, a residual of the product before it, and new keys and values go to their cache in
the kernel that looks at it. No kernel depends on numbers that the host would have to know: each row has its own place.
Tests run them by Triton's interpreter and hold them against the modules.

    R rows   p model width   H heads   G key-value heads   d head width   C capacity   n source tokens   B inputs
"""

from __future__ import annotations

import triton
from torch import Tensor
from triton import language as tl

from regard.kernels.decode_gpu.linear_triton import early, wait

CROWD = 1024  # programs of attention that keep a GPU busy with one warp each


@triton.jit
def _embed(
    tokens,
    lengths,
    table,
    places,
    out,
    width,
    factor,
    ADD: tl.constexpr,
    WIDTH: tl.constexpr,
    EARLY: tl.constexpr,
):
    """A row's token vector, and the vector of its place."""
    wait(EARLY)
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
        **early(tokens),
    )
    return out


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
    EARLY: tl.constexpr,
):
    wait(EARLY)
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


def _tile(programs: int, keys: int) -> dict[str, int]:
    """How many keys a program takes at once, by how many warps. Many programs fill the GPU with one warp each.

    Sums over one warp need no shared memory, and nobody waits for others.
    """
    if programs >= CROWD:
        return {"KEYS": 16, "num_warps": 1}
    return {"KEYS": min(64, max(16, triton.next_power_of_2(keys))), "num_warps": 4}


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
        **_tile(rows * heads, capacity),
        **early(qkv),
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
        **_tile(rows * heads, n),
        **early(q),
    )
    return out
