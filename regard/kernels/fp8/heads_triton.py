"""Join the gradients of queries, keys and values and write them as 8-bit numbers, in one Triton kernel.

As kernels/training/split_heads_triton.py, with the casts of casts.py in the same pass.

    B batch   T tokens   H heads   d width of a head
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton import language as tl

from regard.kernels.fp8.casts import E5M2, Cast, empty_cast
from regard.kernels.fp8.casts_triton import format_options, store_cast, tiles
from regard.kernels.training.row_sums_triton import add_up
from regard.kernels.training.split_heads_triton import read_part

WARPS = 4


@triton.jit
def _join_cast(
    dq,
    dk,
    dv,
    sums,  # (tiles down, 3 H d)
    amax,
    straight,
    transposed,
    inverse,
    R,
    padded,
    length,
    q_batch,
    q_head,
    q_token,
    k_batch,
    k_head,
    k_token,
    v_batch,
    v_head,
    v_token,
    WIDTH: tl.constexpr,  # H d
    D: tl.constexpr,
    TOP: tl.constexpr,
    LIMIT: tl.constexpr,
    E5M2: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Process some columns of one of the three gradients."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    which, at = tl.program_id(1), tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (r < R)[:, None] & (at < WIDTH)[None, :]
    part, batch, head, token = dq, q_batch, q_head, q_token
    if which == 1:
        part, batch, head, token = dk, k_batch, k_head, k_token
    elif which == 2:
        part, batch, head, token = dv, v_batch, v_head, v_token
    x = read_part(part, batch, head, token, r, inside, at, length, D)
    tl.store(sums + (tl.program_id(0) * 3 + which) * WIDTH + at, tl.sum(x.to(tl.float32), 0), mask=at < WIDTH)
    is_first = (tl.program_id(0) == 0) & (which == 0) & (tl.program_id(2) == 0)
    c, C, end = which * WIDTH + at, 3 * WIDTH, (which + 1) * WIDTH
    store_cast(x, r, c, amax, straight, transposed, inverse, R, C, padded, end, is_first, TOP, LIMIT, E5M2)


def join_cast(dq: Tensor, dk: Tensor, dv: Tensor, amax: Tensor) -> tuple[Cast, Tensor]:
    """Join three tensors (B, H, T, d) to (B T, 3 H d) in e5m2, and sum it over all tokens in float32."""
    parts = [gradient if gradient.stride(3) == 1 else gradient.contiguous() for gradient in (dq, dk, dv)]
    B, H, T, d = dq.shape
    rows, width = B * T, H * d
    cast = empty_cast(rows, 3 * width, dq.device)
    sums = torch.empty(tiles(cast)[0], 3 * width, device=dq.device)
    options = format_options(E5M2)
    _join_cast[(tiles(cast)[0], 3, triton.cdiv(width, options["COLUMNS"]))](
        *parts,
        sums,
        amax,
        *cast,
        rows,
        cast.transposed.shape[1],
        T,
        *(stride for gradient in parts for stride in gradient.stride()[:3]),
        WIDTH=width,
        D=d,
        **options,
        num_warps=WARPS,
    )
    return cast, add_up(sums)
