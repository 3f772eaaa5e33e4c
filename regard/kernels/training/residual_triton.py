"""Residual, dropout and norm of a block, as one Triton kernel forward and one backward, for NVIDIA GPUs.

Vaswani et al. 2017, sections 3.1 and 5.4; E1, E3. The forward kernel reads x and h and writes s = x + dropout(h) and
norm(s). The backward kernel reads or writes each of these once; without dropout x and h have the same gradient. No
other tensor of that size is read or written: the dropout mask is generated again, and the mean and the variance are
computed again. The kernels process the last rows first: the product before wrote them last, so they are still in the
GPU's cache, and the product after starts with the first rows. Tests compare the kernels with the modules in Triton's
interpreter.

    R rows: all tokens   p width
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.library import custom_op
from triton import language as tl

from regard.kernels.training.dropout_triton import kept, share
from regard.kernels.training.row_sums_triton import add_up

NUMBERS_PER_WARP = 512  # of each tensor: 16 per thread
FORWARD_NUMBERS, BACKWARD_NUMBERS = 1024, 512  # of one row that a warp may process
WARPS_PER_PROCESSOR, REGISTERS_PER_THREAD = 16, 128  # in the backward kernel: all that a multiprocessor has
STAGES = 3  # of the backward kernel's pipeline: current rows and prefetched ones


@triton.jit
def _inside(r, rows, at, width, ROWS: tl.constexpr):
    """Return which numbers exist, (ROWS, P); with one row at a time, all rows do."""
    columns = (at < width)[None, :]
    if ROWS > 1:
        columns = (r < rows)[:, None] & columns
    return columns


@triton.jit
def _normed(s, inside, width, eps, CENTRED: tl.constexpr):
    """Return the normalized s (ROWS, P), centred if CENTRED, and its inverse standard deviation (ROWS,)."""
    if CENTRED:
        s = tl.where(inside, s - (tl.sum(s, 1) / width)[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(s * s, 1) / width + eps)
    return s * inverse[:, None], inverse


@triton.jit
def _norm(
    x,
    h,
    weight,
    bias,
    seed,
    y,
    s,
    rows,
    eps,
    dropped,
    inverse_keep,
    width: tl.constexpr,
    DROP: tl.constexpr,
    CENTRED: tl.constexpr,
    BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    P: tl.constexpr,
):
    """Compute s = x + dropout(h) and y = norm(s) for some rows."""
    r, at = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS + tl.arange(0, ROWS), tl.arange(0, P)
    inside = _inside(r, rows, at, width, ROWS)
    where = r.to(tl.int64)[:, None] * width + at[None, :]
    added = tl.load(h + where, mask=inside, other=0.0).to(tl.float32)
    if DROP:
        added = tl.where(kept(tl.load(seed), r, dropped, ROWS, P), added * inverse_keep, 0.0)
    total = tl.load(x + where, mask=inside, other=0.0).to(tl.float32) + added
    rounded = total.to(s.dtype.element_ty)
    tl.store(s + where, rounded, mask=inside)
    # Normalize the rounded values, because the backward pass reads those.
    normed, _ = _normed(rounded.to(tl.float32), inside, width, eps, CENTRED)
    normed *= tl.load(weight + at[None, :], mask=(at < width)[None, :], other=0.0).to(tl.float32)
    if BIAS:
        normed += tl.load(bias + at[None, :], mask=(at < width)[None, :], other=0.0).to(tl.float32)
    tl.store(y + where, normed.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _norm_back(
    dy,
    ds,
    s,
    weight,
    seed,
    dx,
    dh,
    sums,  # (programs, 2 or 3, p) of the gradients of weight, bias and, if SHIFT, the bias of h
    rows,
    eps,
    dropped,
    inverse_keep,
    width: tl.constexpr,
    DROP: tl.constexpr,
    SHIFT: tl.constexpr,
    CENTRED: tl.constexpr,
    MORE: tl.constexpr,  # whether there is a gradient ds
    POST: tl.constexpr,  # whether ds is added to dy
    STAGES: tl.constexpr,
    ROWS: tl.constexpr,
    P: tl.constexpr,
):
    """Compute gradients for many rows, so that each program writes one sum per vector; the next rows are prefetched.

    With n = (s - mean) / size and g = weight dy:   dx = (g - mean(g) - n mean(g n)) / size + ds.
    If POST, ds is added to dy.
    """
    at = tl.arange(0, P)
    gain = tl.load(weight + at[None, :], mask=(at < width)[None, :], other=0.0).to(tl.float32)
    to_weight, to_bias = tl.zeros((ROWS, P), tl.float32), tl.zeros((ROWS, P), tl.float32)
    to_shift = tl.zeros((ROWS, P), tl.float32)
    if DROP:
        key = tl.load(seed)
    for back in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        r = (tl.cdiv(rows, ROWS) - 1 - back) * ROWS + tl.arange(0, ROWS)
        inside = _inside(r, rows, at, width, ROWS)
        where = r.to(tl.int64)[:, None] * width + at[None, :]
        gradient = tl.load(dy + where, mask=inside, other=0.0).to(tl.float32)
        if MORE:
            extra = tl.load(ds + where, mask=inside, other=0.0).to(tl.float32)
            if POST:
                gradient += extra
        total = tl.load(s + where, mask=inside, other=0.0).to(tl.float32)
        normed, inverse = _normed(total, inside, width, eps, CENTRED)
        to_weight += gradient * normed
        to_bias += gradient
        gradient *= gain
        step = gradient - normed * (tl.sum(gradient * normed, 1) / width)[:, None]
        if CENTRED:
            step -= (tl.sum(gradient, 1) / width)[:, None]
        step *= inverse[:, None]
        if MORE and not POST:
            step += extra
        tl.store(dx + where, step.to(dx.dtype.element_ty), mask=inside)
        if DROP:
            step = tl.where(kept(key, r, dropped, ROWS, P), step * inverse_keep, 0.0)
            tl.store(dh + where, step.to(dh.dtype.element_ty), mask=inside)
        if SHIFT:
            to_shift += step
    own_sums = sums + tl.program_id(0) * (3 if SHIFT else 2) * width + at
    tl.store(own_sums, tl.sum(to_weight, 0), mask=at < width)
    tl.store(own_sums + width, tl.sum(to_bias, 0), mask=at < width)
    if SHIFT:
        tl.store(own_sums + 2 * width, tl.sum(to_shift, 0), mask=at < width)


@triton.jit
def _add(x, h, seed, out, rows, width, dropped, inverse_keep, TO: tl.constexpr, ROWS: tl.constexpr, P: tl.constexpr):
    """Compute some rows of x + dropout(h), or of dropout(h) alone."""
    r, at = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS + tl.arange(0, ROWS), tl.arange(0, P)
    inside = (r < rows)[:, None] & (at < width)[None, :]
    where = r.to(tl.int64)[:, None] * width + at[None, :]
    total = tl.load(h + where, mask=inside, other=0.0).to(tl.float32)
    total = tl.where(kept(tl.load(seed), r, dropped, ROWS, P), total * inverse_keep, 0.0)
    if TO:
        total += tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + where, total.to(out.dtype.element_ty), mask=inside)


@custom_op("regard::add_norm", mutates_args=())
def add_norm(
    x: Tensor,
    past: Tensor,
    h: Tensor,
    shift: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    eps: float,
    centred: bool,
    post: bool,
) -> tuple[Tensor, Tensor]:
    """x and h (…, p) -> y = norm(s), s = x + dropout(h); the norm is LayerNorm if `centred`, else RMSNorm.

    `shift` (p,) is the bias of the product that computed h. It is already part of h; the backward kernel computes its
    gradient as a sum over values that it has loaded anyway. The gradient of x is sent to `past`, which is x itself, or
    the s of the call that returned x as y. In a post-norm block y enters the next sublayer and also bypasses it, and
    adding its two gradients would take another kernel. Therefore, if `post`, a gradient of s is meant for y, and the
    backward kernel adds it while reading.
    """
    x, h = x.contiguous(), h.contiguous()
    y, s = torch.empty_like(x), torch.empty_like(x)
    rows, options = _tiling(x, warp=FORWARD_NUMBERS)
    _norm[(triton.cdiv(rows, options["ROWS"]),)](
        x,
        h,
        weight,
        weight if bias is None else bias,
        weight if seed is None else seed,
        y,
        s,
        rows,
        eps,
        *share(dropout),
        width=x.shape[-1],
        DROP=dropout > 0,
        CENTRED=centred,
        BIAS=bias is not None,
        **options,
    )
    return y, s


@custom_op("regard::add_norm_back", mutates_args=())
def add_norm_back(
    dy: Tensor,
    ds: Tensor | None,
    s: Tensor,
    weight: Tensor,
    seed: Tensor | None,
    dropout: float,
    eps: float,
    centred: bool,
    post: bool,
    shifted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, of h, and of weight, bias and, if `shifted`, shift as (2 or 3, p).

    Without dropout h has the gradient of x, and its tensor is empty. `ds` is a gradient of s, or if `post` of y.
    """
    dy = dy.contiguous()
    dx, dh = torch.empty_like(s), _empty_like(s, dropout)
    rows, options = _tiling(s, warp=BACKWARD_NUMBERS)
    programs = _programs(s, rows, options)
    sums = torch.empty(programs, 3 if shifted else 2, s.shape[-1], device=s.device)
    _norm_back[(programs,)](
        dy,
        dy if ds is None else ds.contiguous(),
        s,
        weight,
        weight if seed is None else seed,
        dx,
        dh,
        sums,
        rows,
        eps,
        *share(dropout),
        width=s.shape[-1],
        DROP=dropout > 0,
        SHIFT=shifted,
        CENTRED=centred,
        MORE=ds is not None,
        POST=post,
        STAGES=STAGES,
        maxnreg=REGISTERS_PER_THREAD,
        **options,
    )
    return dx, dh, add_up(sums).to(weight.dtype)


@custom_op("regard::add_dropped", mutates_args=())
def add_dropped(x: Tensor | None, h: Tensor, seed: Tensor, dropout: float) -> Tensor:
    """Return x + dropout(h) for x and h (…, p); without x, dropout(h)."""
    h = h.contiguous()
    out = torch.empty_like(h)
    rows, options = _tiling(h, warp=FORWARD_NUMBERS)
    _add[(triton.cdiv(rows, options["ROWS"]),)](
        h if x is None else x.contiguous(),
        h,
        seed,
        out,
        rows,
        h.shape[-1],
        *share(dropout),
        TO=x is not None,
        **options,
    )
    return out


def _tiling(x: Tensor, *, warp: int) -> tuple[int, dict[str, int]]:
    """Return the number of rows and the tile sizes: a warp has `warp` numbers of one row, or fewer of several rows."""
    width = max(16, triton.next_power_of_2(x.shape[-1]))
    rows = max(1, NUMBERS_PER_WARP // width)
    return x.numel() // x.shape[-1], {"ROWS": rows, "P": width, "num_warps": max(1, width // warp)}


def _programs(x: Tensor, rows: int, options: dict[str, int]) -> int:
    """Return the number of programs that the GPU runs at once, if each processes many rows."""
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
    return min(triton.cdiv(rows, options["ROWS"]), processors * max(1, WARPS_PER_PROCESSOR // options["num_warps"]))


def _contiguous(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _empty_like(x: Tensor, dropout: float) -> Tensor:
    """Allocate a gradient that differs from that of x only if there is dropout; otherwise return an empty tensor."""
    return _contiguous(x) if dropout else x.new_empty(0)


@add_norm.register_fake
def _(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return _contiguous(x), _contiguous(x)


@add_norm_back.register_fake
def _(
    dy: Tensor, ds: Tensor | None, s: Tensor, weight: Tensor, seed: Tensor | None, dropout: float, *settings: object
) -> tuple[Tensor, Tensor, Tensor]:
    return _contiguous(s), _empty_like(s, dropout), weight.new_empty(3 if settings[-1] else 2, weight.shape[0])


@add_dropped.register_fake
def _(x: Tensor | None, h: Tensor, *_: object) -> Tensor:
    return _contiguous(h)


def _save_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, _, shift, weight, bias, seed, *ctx.settings = inputs
    ctx.save_for_backward(output[1], weight, seed)
    ctx.shifted, ctx.bias = shift is not None, bias is not None
    ctx.set_materialize_grads(False)  # if only one result is used, no zeros are read for the other


def _norm_gradients(ctx: Any, dy: Tensor | None, ds: Tensor | None) -> tuple[Tensor | None, ...]:
    s, weight, seed = ctx.saved_tensors
    dropout, *_, post = ctx.settings
    if dy is None and post:
        dy, ds = ds, None
    if dy is None:
        if ds is None:
            return (None,) * 11
        dx, none = ds, torch.zeros_like(weight)
        dh = add_dropped(None, ds, seed, dropout) if dropout else ds
        sums = torch.stack([none, none, dh.flatten(0, -2).sum(0).to(weight.dtype)])
    else:
        dx, dh, sums = add_norm_back(dy, ds, s, weight, seed, *ctx.settings, ctx.shifted)
        dh = dh if dropout else dx
    to_shift, to_bias = sums[2] if ctx.shifted else None, sums[1] if ctx.bias else None
    return None, dx, dh, to_shift, sums[0], to_bias, None, None, None, None, None


def _save_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, _, seed, ctx.dropout = inputs
    ctx.save_for_backward(seed)


def _sum_gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return gradient, add_dropped(None, gradient, *ctx.saved_tensors, ctx.dropout), None, None


add_norm.register_autograd(_norm_gradients, setup_context=_save_norm)
add_dropped.register_autograd(_sum_gradients, setup_context=_save_sum)
