"""The inner layer of a feed-forward net, and its gradient, written as 8-bit numbers by Triton kernels for NVIDIA GPUs.

As kernels/training/feed_forward_triton.py, with the casts of casts.py in the same pass: these are the widest tensors of
a block, and a separate cast would read and write each once more. The backward kernel reads h also with ReLU.

    R rows: all tokens   d_ff inner width
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton import language as tl

from regard.kernels.fp8.casts import E4M3, E5M2, Cast, empty_cast
from regard.kernels.fp8.casts_triton import format_options, store_cast, tiles
from regard.kernels.training.dropout_triton import kept, share
from regard.kernels.training.feed_forward_triton import gelu, random_row
from regard.kernels.training.row_sums_triton import add_up

WARPS = 4


@triton.jit
def _hidden_cast(
    h,
    seed,
    amax,
    straight,
    transposed,
    inverse,
    R,
    width,
    padded,
    dropped,
    inverse_keep,
    RELU: tl.constexpr,
    DROP: tl.constexpr,
    TOP: tl.constexpr,
    LIMIT: tl.constexpr,
    E5M2: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Process a tile of h."""
    r = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (r < R)[:, None] & (c < width)[None, :]
    x = tl.load(h + r.to(tl.int64)[:, None] * width + c[None, :], mask=inside, other=0.0).to(tl.float32)
    if RELU:
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    else:
        x, _ = gelu(x)
    if DROP:
        x = tl.where(kept(tl.load(seed), random_row(r), dropped, ROWS, COLUMNS), x * inverse_keep, 0.0)
    is_first = (tl.program_id(0) == 0) & (tl.program_id(1) == 0)
    store_cast(x, r, c, amax, straight, transposed, inverse, R, width, padded, width, is_first, TOP, LIMIT, E5M2)


@triton.jit
def _hidden_cast_back(
    grad_out,
    h,
    seed,
    sums,  # (tiles down, d_ff)
    amax,
    straight,
    transposed,
    inverse,
    R,
    width,
    padded,
    dropped,
    inverse_keep,
    RELU: tl.constexpr,
    DROP: tl.constexpr,
    TOP: tl.constexpr,
    LIMIT: tl.constexpr,
    E5M2: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Process a tile of the gradient; its sum over the rows is a part of the gradient of the bias."""
    r = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (r < R)[:, None] & (c < width)[None, :]
    where = r.to(tl.int64)[:, None] * width + c[None, :]
    step = tl.load(grad_out + where, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(h + where, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        step = tl.where(x > 0.0, step, 0.0)
    else:
        step *= gelu(x)[1]
    if DROP:
        step = tl.where(kept(tl.load(seed), random_row(r), dropped, ROWS, COLUMNS), step * inverse_keep, 0.0)
    tl.store(sums + tl.program_id(0) * width + c, tl.sum(step, 0), mask=c < width)
    is_first = (tl.program_id(0) == 0) & (tl.program_id(1) == 0)
    store_cast(step, r, c, amax, straight, transposed, inverse, R, width, padded, width, is_first, TOP, LIMIT, E5M2)


def hidden_cast(h: Tensor, seed: Tensor | None, dropout: float, relu: bool, amax: Tensor) -> Cast:
    """Return dropout(f(h)) for h (R, d_ff) in e4m3, f is GELU by its approximation, or if `relu` ReLU."""
    cast = empty_cast(h.shape[0], h.shape[1], h.device)
    _hidden_cast[tiles(cast)](
        h,
        h if seed is None else seed,
        amax,
        *cast,
        *h.shape,
        cast.transposed.shape[1],
        *share(dropout),
        RELU=relu,
        DROP=dropout > 0,
        **format_options(E4M3),
        num_warps=WARPS,
    )
    return cast


def hidden_cast_back(
    grad_out: Tensor, h: Tensor, seed: Tensor | None, dropout: float, relu: bool, amax: Tensor
) -> tuple[Cast, Tensor]:
    """Return the gradient of h (R, d_ff) in e5m2, and its sum over the rows in float32."""
    cast = empty_cast(h.shape[0], h.shape[1], h.device)
    sums = torch.empty(tiles(cast)[0], h.shape[1], device=h.device)
    _hidden_cast_back[tiles(cast)](
        grad_out,
        h,
        h if seed is None else seed,
        sums,
        amax,
        *cast,
        *h.shape,
        cast.transposed.shape[1],
        *share(dropout),
        RELU=relu,
        DROP=dropout > 0,
        **format_options(E5M2),
        num_warps=WARPS,
    )
    return cast, add_up(sums)
