"""Embedding and attention of a decoding step on a GPU, as kernels.

E3, E4, E6. With one row, a step does almost no arithmetic: its time is spent between kernels. The step therefore has
few of them. A norm is fused into the product that follows it, a residual into the product before it, and the attention
kernel writes the new keys and values to the cache. No launch depends on a number that only the GPU knows, so a step
can be captured as a CUDA graph; each row has its own position. The tests run the kernels in Triton's interpreter and
compare them with the modules.

    R rows   p model width   H heads   G key-value heads   d head width   C capacity   n source tokens   B inputs
"""

from __future__ import annotations

import triton
from torch import Tensor
from triton import language as tl

from regard.kernels.decode_gpu.dependent_launch_triton import launch_options, wait_for_inputs

MIN_BUSY_PROGRAMS = 1024  # so many programs of attention occupy a GPU with one warp each


@triton.jit
def _embed(
    tokens,
    lengths,
    table,
    position_vectors,
    out,
    width,
    factor,
    ADD: tl.constexpr,
    WIDTH: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Write a row's scaled token vector plus the vector of its position."""
    wait_for_inputs(EARLY)
    row = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    valid = column < width
    x = tl.load(table + tl.load(tokens + row).to(tl.int64) * width + column, mask=valid, other=0.0)
    x = (x.to(tl.float32) * factor).to(table.dtype.element_ty)
    if ADD:
        x = x + tl.load(position_vectors + tl.load(lengths + row) * width + column, mask=valid, other=0.0)
    tl.store(out + row * width + column, x, mask=valid)


def embed(tokens: Tensor, lengths: Tensor, table: Tensor, factor: float, position_vectors: Tensor | None) -> Tensor:
    """Return the vectors (R, p) of tokens (R,) at positions `lengths` (R,); position_vectors is (C, p)."""
    width = table.shape[1]
    out = table.new_empty(len(tokens), width)
    _embed[(len(tokens),)](
        tokens,
        lengths,
        table,
        table if position_vectors is None else position_vectors,
        out,
        width,
        factor,
        ADD=position_vectors is not None,
        WIDTH=triton.next_power_of_2(width),
        **launch_options(tokens),
    )
    return out


@triton.jit
def _load_rotated(head, i, d, valid, position, frequencies, rotated_width, INTERLEAVED: tl.constexpr):
    """Load a query or key (d,) and rotate it by its position; Su et al. 2021, equation 34."""
    half = rotated_width // 2
    if INTERLEAVED:
        first = i % 2 == 0
        partner = tl.where(first, i + 1, i - 1)
        pair = i // 2
    else:
        first = i < half
        partner = tl.where(first, i + half, i - half)
        pair = i % half
    rotates = i < rotated_width
    x = tl.load(head + i, mask=valid, other=0.0).to(tl.float32)
    y = tl.load(head + partner, mask=rotates, other=0.0).to(tl.float32)
    angle = position.to(tl.float32) * tl.load(frequencies + pair, mask=rotates, other=0.0)
    y = tl.where(first, -y, y)
    return tl.where(rotates, x * tl.cos(angle) + y * tl.sin(angle), x).to(head.dtype.element_ty).to(tl.float32)


@triton.jit
def _attend(
    q,  # (R, ·), the queries of all heads; for self-attention the new keys and values follow
    k,  # (R, G, C, d), or for cross-attention (B, G, n, d)
    v,
    lengths,  # (R,) tokens before this one
    origins,  # (R, C) the row of the cache that holds the keys and values of each token
    keep,  # (B, n) 0 for padding of the source
    frequencies,
    out,  # (R, H·d)
    q_width,
    heads,
    kv_heads,
    d,
    keys,  # C or n
    rows_per_source,
    rotated_width,
    scale,
    CROSS: tl.constexpr,
    REORDERED: tl.constexpr,  # whether rows may have changed places, so that origins must be read
    ROTARY: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    D: tl.constexpr,
    KEYS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Attention of one row and head, with a running softmax; self-attention also appends to the cache."""
    wait_for_inputs(EARLY)
    r, h = tl.program_id(0), tl.program_id(1)
    g = h // (heads // kv_heads)
    i = tl.arange(0, D)
    valid = i < d
    head = q + r * q_width + h * d
    position = tl.load(lengths + r)
    if ROTARY:
        query = _load_rotated(head, i, d, valid, position, frequencies, rotated_width, INTERLEAVED)
    else:
        query = tl.load(head + i, mask=valid, other=0.0).to(tl.float32)
    query *= scale
    if CROSS:
        end = keys
        top = -1e30
        sum_exp = 0.0
        mixed = tl.zeros((D,), tl.float32)
    else:
        new_key = q + r * q_width + heads * d + g * d
        if ROTARY:
            key = _load_rotated(new_key, i, d, valid, position, frequencies, rotated_width, INTERLEAVED)
        else:
            key = tl.load(new_key + i, mask=valid, other=0.0).to(tl.float32)
        value = tl.load(new_key + kv_heads * d + i, mask=valid, other=0.0).to(tl.float32)
        if h % (heads // kv_heads) == 0:
            cache_index = ((r.to(tl.int64) * kv_heads + g) * keys + position) * d + i
            tl.store(k + cache_index, key.to(k.dtype.element_ty), mask=valid)
            tl.store(v + cache_index, value.to(v.dtype.element_ty), mask=valid)
        end = position
        top = tl.sum(query * key, 0)
        sum_exp = 1.0
        mixed = value
    for start in range(0, end, KEYS):
        j = start + tl.arange(0, KEYS)
        seen = j < end
        if CROSS:
            row = tl.zeros((KEYS,), tl.int64) + r // rows_per_source
            seen = seen & (tl.load(keep + row * keys + j, mask=seen, other=0) != 0)
        else:
            row = tl.zeros((KEYS,), tl.int64) + r
            if REORDERED:
                row = tl.load(origins + r * keys + j, mask=seen, other=0).to(tl.int64)
        mask = seen[:, None] & valid[None, :]
        cache_index = (((row * kv_heads + g) * keys + j) * d)[:, None] + i[None, :]
        scores = tl.sum(tl.load(k + cache_index, mask=mask, other=0.0).to(tl.float32) * query[None, :], 1)
        scores = tl.where(seen, scores, -1e30)
        new_top = tl.maximum(top, tl.max(scores, 0))
        weights = tl.where(seen, tl.exp(scores - new_top), 0.0)
        decay = tl.exp(top - new_top)
        values = tl.load(v + cache_index, mask=mask, other=0.0).to(tl.float32)
        mixed = mixed * decay + tl.sum(weights[:, None] * values, 0)
        sum_exp = sum_exp * decay + tl.sum(weights, 0)
        top = new_top
    tl.store(out + (r * heads + h) * d + i, (mixed / sum_exp).to(out.dtype.element_ty), mask=valid)


def _tile(programs: int, keys: int) -> dict[str, int]:
    """Choose how many keys a program reads at once, and with how many warps.

    Many programs occupy the GPU with one warp each. A sum within one warp needs no shared memory and no barrier.
    """
    if programs >= MIN_BUSY_PROGRAMS:
        return {"KEYS": 16, "num_warps": 1}
    return {"KEYS": min(64, max(16, triton.next_power_of_2(keys))), "num_warps": 4}


def self_attention(
    qkv: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Tensor,
    origins: Tensor | None,
    *,
    heads: int,
    rotary: tuple[Tensor, bool] | None = None,
) -> Tensor:
    """Attend from each row's new token to its text so far, (R, H·d), and append its key and value to the cache.

    `rotary` holds the frequencies of rotary positions and whether their pairs are interleaved.
    """
    rows, kv_heads, capacity, d = k.shape
    out = qkv.new_empty(rows, heads * d)
    _attend[(rows, heads)](
        qkv,
        k,
        v,
        lengths,
        lengths if origins is None else origins,
        lengths,
        lengths if rotary is None else rotary[0],
        out,
        qkv.shape[1],
        heads,
        kv_heads,
        d,
        capacity,
        1,
        0 if rotary is None else 2 * len(rotary[0]),
        d**-0.5,
        CROSS=False,
        REORDERED=origins is not None,
        ROTARY=rotary is not None,
        INTERLEAVED=rotary is not None and rotary[1],
        D=triton.next_power_of_2(d),
        **_tile(rows * heads, capacity),
        **launch_options(qkv),
    )
    return out


def cross_attention(q: Tensor, k: Tensor, v: Tensor, keep: Tensor, lengths: Tensor, *, heads: int) -> Tensor:
    """Attend from each row to its source, which the rows of one input share: (R, H·d)."""
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
        REORDERED=False,
        ROTARY=False,
        INTERLEAVED=False,
        D=triton.next_power_of_2(d),
        **_tile(rows * heads, n),
        **launch_options(q),
    )
    return out
