"""Cast a matrix to 8-bit floating-point numbers, as it is and transposed, in one Triton kernel, for NVIDIA GPUs.

Micikevicius et al. 2022. `torch._scaled_mm` wants both factors with the summed dimension contiguous. The products of
the backward pass sum over other dimensions than that of the forward pass, so each matrix is needed in both orders. A
program computes a tile once and writes it twice; the tile is so large that both orders are written in whole sectors of
memory. The tile is transposed while its numbers have 16 bits, for which the GPU has instructions.

Other kernels compute the numbers of a tile in place of loading them, and call `store_cast`: hidden_triton.py and
heads_triton.py. No expression here compares numbers: a compiler that keeps thousands of conditions slows a kernel down.

    R rows: all tokens, or the outputs of a weight   C columns: inputs
"""

from __future__ import annotations

from typing import Any

import triton
from torch import Tensor
from triton import language as tl

from regard.kernels.fp8.casts import E5M2, Cast, Format

TILE_ROWS, TILE_COLUMNS, WARPS = 64, 128, 4


@triton.jit
def scale_exponent(amax, TOP: tl.constexpr):
    """Return s such that amax[0], the largest magnitude of the last step, times 2^s is in [2^TOP, 2^(TOP + 1))."""
    exponent = (tl.load(amax).to(tl.int32, bitcast=True) >> 23) - 127  # floor(log2), because it is not negative
    return tl.minimum(tl.maximum(TOP - exponent, -126), 126)


@triton.jit
def power_of_two(exponent):
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def to_bytes(x, scale, LIMIT: tl.constexpr, E5M2: tl.constexpr):
    """Scale and round x to 8 bits. Too large magnitudes become the largest one, and NaN stays NaN."""
    y = tl.clamp(x.to(tl.float32) * scale, -LIMIT, LIMIT, propagate_nan=tl.PropagateNan.ALL)
    if E5M2:
        return y.to(tl.float8e5).to(tl.uint8, bitcast=True)
    return y.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


@triton.jit
def store_cast(
    numbers,  # (ROWS, COLUMNS): rows r and columns c of the matrix; 0 outside
    r,
    c,
    amax,
    straight,  # (R, C)
    transposed,  # (C, padded)
    inverse,
    R,
    C,
    padded,  # R, or more: columns of zeros
    end,  # C, or the first column that is another program's
    is_first,  # whether this program writes the inverse scale
    TOP: tl.constexpr,
    LIMIT: tl.constexpr,
    E5M2: tl.constexpr,
):
    """Store a tile in both orders, and raise amax[1] to its largest finite magnitude."""
    exponent = scale_exponent(amax, TOP)
    scale = power_of_two(exponent)
    numbers = numbers.to(tl.bfloat16)
    inside = (r < R)[:, None] & (c < end)[None, :]
    tl.store(straight + r.to(tl.int64)[:, None] * C + c[None, :], to_bytes(numbers, scale, LIMIT, E5M2), mask=inside)
    across = c.to(tl.int64)[:, None] * padded + r[None, :]
    turned = to_bytes(tl.trans(numbers), scale, LIMIT, E5M2)
    tl.store(transposed + across, turned, mask=(c < end)[:, None] & (r < padded)[None, :])
    largest = tl.max(tl.max(tl.abs(numbers.to(tl.float32)), 1), 0)  # of NaN and a number, the number
    tl.atomic_max(amax + 1, tl.where(largest < float("inf"), largest, 0.0), sem="relaxed")
    if is_first:
        tl.store(inverse, power_of_two(-exponent))


@triton.jit
def cast_kernel(
    x,
    amax,
    straight,
    transposed,
    inverse,
    R,
    C,
    padded,
    TOP: tl.constexpr,
    LIMIT: tl.constexpr,
    E5M2: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Cast a tile."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (r < R)[:, None] & (c < C)[None, :]
    numbers = tl.load(x + r.to(tl.int64)[:, None] * C + c[None, :], mask=inside, other=0.0)
    is_first = (tl.program_id(0) == 0) & (tl.program_id(1) == 0)
    store_cast(numbers, r, c, amax, straight, transposed, inverse, R, C, padded, C, is_first, TOP, LIMIT, E5M2)


def launch_cast(x: Tensor, amax: Tensor, cast: Cast, form: Format) -> None:
    R, C = x.shape
    cast_kernel[tiles(cast)](x, amax, *cast, R, C, cast.transposed.shape[1], **format_options(form), num_warps=WARPS)


def tiles(cast: Cast) -> tuple[int, int]:
    """Return how many tiles cover a matrix."""
    columns, padded = cast.transposed.shape
    return triton.cdiv(padded, TILE_ROWS), triton.cdiv(columns, TILE_COLUMNS)


def format_options(form: Format) -> dict[str, Any]:
    """Return the arguments of a kernel that say how it casts."""
    return {
        "TOP": form.top,
        "LIMIT": form.limit,
        "E5M2": form is E5M2,
        "ROWS": TILE_ROWS,
        "COLUMNS": TILE_COLUMNS,
    }
