"""Cast a matrix to 8-bit floating-point numbers, as it is and transposed, in one Triton kernel, for NVIDIA GPUs.

Micikevicius et al. 2022. `torch._scaled_mm` wants both factors with the summed dimension contiguous. The products of
the backward pass sum over other dimensions than that of the forward pass, so each matrix is needed in both orders. A
program reads a tile once and writes it twice; the tile is so large that both orders are written in whole sectors of
memory. The compiler chooses how threads exchange the bytes.

    R rows: all tokens, or the outputs of a weight   C columns: inputs
"""

from __future__ import annotations

import triton
from torch import Tensor
from triton import language as tl

from regard.machine import multiprocessors

TILE_ROWS, TILE_COLUMNS, WARPS = 64, 128, 4
SCANNED, SCANS_PER_PROCESSOR = 4096, 4  # numbers that a program of `scan_kernel` reads at a time; programs


@triton.jit
def finite_magnitude(x):
    """Return |x|, and 0 in place of infinities and NaN, which must not set a scale."""
    return tl.where(x - x == 0.0, tl.abs(x), 0.0)


@triton.jit
def scale_exponent(amax, TOP: tl.constexpr):
    """Return s such that the largest magnitude times 2^s is in [2^TOP, 2^(TOP + 1)).

    `amax` is (2,): the largest magnitude of the last step, or if that is 0, the one that `scan_kernel` has stored.
    """
    last = tl.load(amax)
    largest = tl.where(last > 0.0, last, tl.load(amax + 1))
    exponent = (largest.to(tl.int32, bitcast=True) >> 23) - 127  # floor(log2), because it is not negative
    return tl.where(largest > 0.0, tl.minimum(tl.maximum(TOP - exponent, -126), 126), 0)


@triton.jit
def power_of_two(exponent):
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def to_bytes(x, scale, LIMIT: tl.constexpr, E5M2: tl.constexpr):
    """Scale and round x to 8 bits. Too large magnitudes become the largest one; infinities and NaN become NaN."""
    y = x * scale
    y = tl.where(y > LIMIT, LIMIT, tl.where(y < -LIMIT, -LIMIT, y))
    y = tl.where(x - x == 0.0, y, float("nan"))
    if E5M2:
        return y.to(tl.float8e5).to(tl.uint8, bitcast=True)
    return y.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


@triton.jit
def scan_kernel(x, amax, count, BLOCK: tl.constexpr):
    """Store the largest magnitude of x in amax[1], if no earlier step has left one in amax[0]."""
    if tl.load(amax) == 0.0:
        largest = tl.zeros((BLOCK,), tl.float32)
        for block in range(tl.program_id(0), tl.cdiv(count, BLOCK), tl.num_programs(0)):
            at = block * tl.full((), BLOCK, tl.int64) + tl.arange(0, BLOCK)
            numbers = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
            largest = tl.maximum(largest, finite_magnitude(numbers))
        tl.atomic_max(amax + 1, tl.max(largest, 0), sem="relaxed")


@triton.jit
def cast_kernel(
    x,
    amax,
    straight,  # (R, C)
    transposed,  # (C, padded)
    inverse,
    R,
    C,
    padded,  # R, or more: columns of zeros
    TOP: tl.constexpr,
    LIMIT: tl.constexpr,
    E5M2: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Cast a tile, and raise amax[1] to its largest magnitude."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    exponent = scale_exponent(amax, TOP)
    inside = (r < R)[:, None] & (c < C)[None, :]
    where = r.to(tl.int64)[:, None] * C + c[None, :]
    numbers = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    cast = to_bytes(numbers, power_of_two(exponent), LIMIT, E5M2)
    tl.store(straight + where, cast, mask=inside)
    across = c.to(tl.int64)[:, None] * padded + r[None, :]
    tl.store(transposed + across, tl.trans(cast), mask=(c < C)[:, None] & (r < padded)[None, :])
    tl.atomic_max(amax + 1, tl.max(tl.max(finite_magnitude(numbers), 1), 0), sem="relaxed")
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(inverse, power_of_two(-exponent))


def launch_scan(x: Tensor, amax: Tensor) -> None:
    programs = min(triton.cdiv(x.numel(), SCANNED), multiprocessors(x.device) * SCANS_PER_PROCESSOR)
    scan_kernel[(programs,)](x, amax, x.numel(), BLOCK=SCANNED, num_warps=8)


def launch_cast(
    x: Tensor,
    amax: Tensor,
    straight: Tensor,
    transposed: Tensor,
    inverse: Tensor,
    *,
    top: int,
    limit: float,
    e5m2: bool,
) -> None:
    R, C, padded = x.shape[0], x.shape[1], transposed.shape[1]
    cast_kernel[(triton.cdiv(padded, TILE_ROWS), triton.cdiv(C, TILE_COLUMNS))](
        x,
        amax,
        straight,
        transposed,
        inverse,
        R,
        C,
        padded,
        TOP=top,
        LIMIT=limit,
        E5M2=e5m2,
        ROWS=TILE_ROWS,
        COLUMNS=TILE_COLUMNS,
        num_warps=WARPS,
    )
