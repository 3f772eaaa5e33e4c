"""Ways to cast a matrix to 8 bits in both orders, which benchmarks/train_fp8.py compares."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
from torch import Tensor
from triton import language as tl

from regard.kernels.fp8.casts import E5M2, Cast, Format, empty_cast
from regard.kernels.fp8.casts_triton import (
    cast_kernel,
    finite_magnitude,
    power_of_two,
    scale_exponent,
    to_bytes,
)

TILES = ((64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 128, 8), (128, 128, 4), (64, 256, 8), (256, 64, 8))
Caster = Callable[[Tensor, Tensor, Format], Cast]


def tiled(rows: int, columns: int, warps: int) -> Caster:
    """The kernel of regard with other tiles: transposes the bytes of a tile."""

    def run(x: Tensor, amax: Tensor, form: Format) -> Cast:
        cast = empty_cast(x)
        R, C, padded = *x.shape, cast.transposed.shape[1]
        cast_kernel[(triton.cdiv(padded, rows), triton.cdiv(C, columns))](
            x, amax, *cast, R, C, padded, TOP=form.top, LIMIT=form.limit, E5M2=form is E5M2, ROWS=rows,
            COLUMNS=columns, num_warps=warps,
        )  # fmt: skip
        return cast

    return run


@triton.jit
def _cast_rows(x, amax, straight, inverse, R, C, TOP: tl.constexpr, LIMIT: tl.constexpr, E5M2: tl.constexpr,
               BLOCK: tl.constexpr):  # fmt: skip
    exponent = scale_exponent(amax, TOP)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    numbers = tl.load(x + at, mask=at < R * C, other=0.0).to(tl.float32)
    tl.store(straight + at, to_bytes(numbers, power_of_two(exponent), LIMIT, E5M2), mask=at < R * C)
    tl.atomic_max(amax + 1, tl.max(finite_magnitude(numbers), 0), sem="relaxed")
    if tl.program_id(0) == 0:
        tl.store(inverse, power_of_two(-exponent))


@triton.jit
def _transpose(straight, transposed, R, C, padded, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (r < R)[:, None] & (c < C)[None, :]
    tile = tl.load(straight + r.to(tl.int64)[:, None] * C + c[None, :], mask=inside, other=0)
    across = c.to(tl.int64)[:, None] * padded + r[None, :]
    tl.store(transposed + across, tl.trans(tile), mask=(c < C)[:, None] & (r < padded)[None, :])


def _rows(x: Tensor, amax: Tensor, form: Format, cast: Cast) -> None:
    _cast_rows[(triton.cdiv(x.numel(), 4096),)](
        x, amax, cast.straight, cast.inverse, *x.shape, TOP=form.top, LIMIT=form.limit, E5M2=form is E5M2, BLOCK=4096,
        num_warps=8,
    )  # fmt: skip


def rows_only(x: Tensor, amax: Tensor, form: Format) -> Cast:
    """The straight cast alone: the least that a cast can take."""
    cast = empty_cast(x)
    _rows(x, amax, form, cast)
    return cast


def rows_then_bytes(x: Tensor, amax: Tensor, form: Format) -> Cast:
    """The straight cast, then a kernel that transposes bytes."""
    cast = empty_cast(x)
    _rows(x, amax, form, cast)
    R, C, padded = *x.shape, cast.transposed.shape[1]
    _transpose[(triton.cdiv(padded, 128), triton.cdiv(C, 128))](
        cast.straight, cast.transposed, R, C, padded, ROWS=128, COLUMNS=128, num_warps=8
    )
    return cast


def rows_then_torch(x: Tensor, amax: Tensor, form: Format) -> Cast:
    """The straight cast, then torch's transposition."""
    cast = empty_cast(x)
    _rows(x, amax, form, cast)
    return cast._replace(transposed=cast.straight.T.contiguous())


@triton.jit
def _cast_twice(
    x, amax, straight, transposed, inverse, R, C, padded, TOP: tl.constexpr, LIMIT: tl.constexpr, E5M2: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Read the tile again in the other order, from the cache; no bytes are exchanged between threads."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    exponent = scale_exponent(amax, TOP)
    inside = (r < R)[:, None] & (c < C)[None, :]
    where = r.to(tl.int64)[:, None] * C + c[None, :]
    numbers = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    tl.store(straight + where, to_bytes(numbers, power_of_two(exponent), LIMIT, E5M2), mask=inside)
    turned_inside = (c < C)[:, None] & (r < R)[None, :]
    turned = tl.load(x + r.to(tl.int64)[None, :] * C + c[:, None], mask=turned_inside, other=0.0).to(tl.float32)
    across = c.to(tl.int64)[:, None] * padded + r[None, :]
    tl.store(
        transposed + across,
        to_bytes(turned, power_of_two(exponent), LIMIT, E5M2),
        mask=(c < C)[:, None] & (r < padded)[None, :],
    )
    tl.atomic_max(amax + 1, tl.max(tl.max(finite_magnitude(numbers), 1), 0), sem="relaxed")
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(inverse, power_of_two(-exponent))


def read_twice(x: Tensor, amax: Tensor, form: Format) -> Cast:
    cast = empty_cast(x)
    R, C, padded = *x.shape, cast.transposed.shape[1]
    _cast_twice[(triton.cdiv(padded, 64), triton.cdiv(C, 64))](
        x, amax, *cast, R, C, padded, TOP=form.top, LIMIT=form.limit, E5M2=form is E5M2, ROWS=64, COLUMNS=64,
        num_warps=4,
    )  # fmt: skip
    return cast


CASTERS: dict[str, Caster] = {
    "rows only": rows_only,
    **{f"tile {rows}x{columns}, {warps} warps": tiled(rows, columns, warps) for rows, columns, warps in TILES},
    "read twice": read_twice,
    "rows, then bytes": rows_then_bytes,
    "rows, then torch": rows_then_torch,
}


def wrong_bytes(cast: Cast, reference: Cast, *, transposed: bool) -> tuple[float, float]:
    """The shares of wrong bytes in both orders."""
    straight = (cast.straight != reference.straight).float().mean().item()
    turned = (cast.transposed != reference.transposed).float().mean().item() if transposed else 0.0
    return straight, turned


def numbers(rows: int, columns: int, device: str, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Numbers of many magnitudes, as activations have them."""
    draw = torch.Generator(device).manual_seed(0)
    x = torch.randn(rows, columns, device=device, generator=draw)
    return (x * torch.randn(1, columns, device=device, generator=draw).exp()).to(dtype)
