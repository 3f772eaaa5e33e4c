"""A block's residual, its dropout and a norm, as one Triton kernel forward and one backward, for NVIDIA GPUs.

Vaswani et al. 2017, sections 3.1 and 5.4; E1, E3. Forward, x and h are read and s = x + dropout(h) and norm(s) are
written; backward, each of these is read or written once more, and without dropout x and h have one gradient. Nothing
else of their size goes through the memory: the dropout mask is drawn anew, and the mean and the variance are found
again. The last rows come first: the product before wrote them last, so they are still in the GPU's cache, and the
product after begins with the first ones. Tests hold it against the modules with Triton's interpreter.

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

FEW = 512  # numbers of each tensor that a warp holds: 16 a thread
FORWARD, BACKWARD = 1024, 512  # and those that it may hold of one row
WARPS, REGISTERS = 16, 128  # backward, on a processor of the GPU and for a thread: all that it has
STAGES = 3  # backward: rows in hand, and those that are read ahead


@triton.jit
def _inside(r, rows, at, width, ROWS: tl.constexpr):
    """Which numbers there are, (ROWS, P); one row at a time is always there."""
    columns = (at < width)[None, :]
    if ROWS > 1:
        columns = (r < rows)[:, None] & columns
    return columns


@triton.jit
def _normed(s, inside, width, eps, CENTRED: tl.constexpr):
    """s (ROWS, P) over its size, without its mean if CENTRED, and 1 over its size (ROWS,)."""
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
    grown,
    width: tl.constexpr,
    DROP: tl.constexpr,
    CENTRED: tl.constexpr,
    BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    P: tl.constexpr,
):
    """s = x + dropout(h), y = norm(s): some rows."""
    r, at = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS + tl.arange(0, ROWS), tl.arange(0, P)
    inside = _inside(r, rows, at, width, ROWS)
    where = r.to(tl.int64)[:, None] * width + at[None, :]
    added = tl.load(h + where, mask=inside, other=0.0).to(tl.float32)
    if DROP:
        added = tl.where(kept(tl.load(seed), r, dropped, ROWS, P), added * grown, 0.0)
    total = tl.load(x + where, mask=inside, other=0.0).to(tl.float32) + added
    rounded = total.to(s.dtype.element_ty)
    tl.store(s + where, rounded, mask=inside)
    # The norm is of what is stored, so that the backward pass finds the same.
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
    grown,
    width: tl.constexpr,
    DROP: tl.constexpr,
    SHIFT: tl.constexpr,
    CENTRED: tl.constexpr,
    MORE: tl.constexpr,  # whether there is a ds
    POST: tl.constexpr,  # whether it is a part of dy
    STAGES: tl.constexpr,
    ROWS: tl.constexpr,
    P: tl.constexpr,
):
    """Many rows, so that each program has one sum over them to write for each vector; the next ones are on their way.

    With n = (s - mean) / size and g = weight dy:   dx = (g - mean(g) - n mean(g n)) / size + ds.
    If POST, ds comes into dy.
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
        given = tl.load(dy + where, mask=inside, other=0.0).to(tl.float32)
        if MORE:
            more = tl.load(ds + where, mask=inside, other=0.0).to(tl.float32)
            if POST:
                given += more
        total = tl.load(s + where, mask=inside, other=0.0).to(tl.float32)
        normed, inverse = _normed(total, inside, width, eps, CENTRED)
        to_weight += given * normed
        to_bias += given
        given *= gain
        step = given - normed * (tl.sum(given * normed, 1) / width)[:, None]
        if CENTRED:
            step -= (tl.sum(given, 1) / width)[:, None]
        step *= inverse[:, None]
        if MORE and not POST:
            step += more
        tl.store(dx + where, step.to(dx.dtype.element_ty), mask=inside)
        if DROP:
            step = tl.where(kept(key, r, dropped, ROWS, P), step * grown, 0.0)
            tl.store(dh + where, step.to(dh.dtype.element_ty), mask=inside)
        if SHIFT:
            to_shift += step
    own = sums + tl.program_id(0) * (3 if SHIFT else 2) * width + at
    tl.store(own, tl.sum(to_weight, 0), mask=at < width)
    tl.store(own + width, tl.sum(to_bias, 0), mask=at < width)
    if SHIFT:
        tl.store(own + 2 * width, tl.sum(to_shift, 0), mask=at < width)


@triton.jit
def _add(x, h, seed, out, rows, width, dropped, grown, TO: tl.constexpr, ROWS: tl.constexpr, P: tl.constexpr):
    """Some rows of x + dropout(h), or of dropout(h) alone."""
    r, at = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS + tl.arange(0, ROWS), tl.arange(0, P)
    inside = (r < rows)[:, None] & (at < width)[None, :]
    where = r.to(tl.int64)[:, None] * width + at[None, :]
    total = tl.load(h + where, mask=inside, other=0.0).to(tl.float32)
    total = tl.where(kept(tl.load(seed), r, dropped, ROWS, P), total * grown, 0.0)
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

    `shift` (p,) is the bias of the product that made h, and part of h: here its gradient is a sum over what is in hand
    already. The gradient of x is sent to `past`, which is x, or else what came as s from the call that gave x as y: in
    a post-norm block y goes into the next sublayer and past it, and the sum of its two gradients would be a kernel of
    its own. So if `post`, a gradient of s is meant for y, and the backward kernel adds it while it reads.
    """
    x, h = x.contiguous(), h.contiguous()
    y, s = torch.empty_like(x), torch.empty_like(x)
    rows, options = _tiling(x, warp=FORWARD)
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
    """The gradients of x, of h, and of weight, bias and, if `shifted`, shift as (2 or 3, p).

    Without dropout that of h is that of x, and is left empty. `ds` as in add_norm: of s, or if `post` of y.
    """
    dy = dy.contiguous()
    dx, dh = torch.empty_like(s), _empty_like(s, dropout)
    rows, options = _tiling(s, warp=BACKWARD)
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
        maxnreg=REGISTERS,
        **options,
    )
    return dx, dh, add_up(sums).to(weight.dtype)


@custom_op("regard::add_dropped", mutates_args=())
def add_dropped(x: Tensor | None, h: Tensor, seed: Tensor, dropout: float) -> Tensor:
    """x and h (…, p) -> x + dropout(h); without x, dropout(h)."""
    h = h.contiguous()
    out = torch.empty_like(h)
    rows, options = _tiling(h, warp=FORWARD)
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
    """How many rows there are, and how they are cut: a warp has so many numbers of one row, or FEW of several."""
    width = max(16, triton.next_power_of_2(x.shape[-1]))
    rows = max(1, FEW // width)
    return x.numel() // x.shape[-1], {"ROWS": rows, "P": width, "num_warps": max(1, width // warp)}


def _programs(x: Tensor, rows: int, options: dict[str, int]) -> int:
    """As many as the GPU runs at once, of those that go over many rows."""
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
    return min(triton.cdiv(rows, options["ROWS"]), processors * max(1, WARPS // options["num_warps"]))


def _contiguous(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _empty_like(x: Tensor, dropout: float) -> Tensor:
    """Room for a gradient that is another one than that of x only if there is dropout."""
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


def _remember_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, _, shift, weight, bias, seed, *ctx.settings = inputs
    ctx.save_for_backward(output[1], weight, seed)
    ctx.shifted, ctx.bias = shift is not None, bias is not None
    ctx.set_materialize_grads(False)  # of the two results one may be used alone: zeros would have to be read


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
        found = torch.stack([none, none, dh.flatten(0, -2).sum(0).to(weight.dtype)])
    else:
        dx, dh, found = add_norm_back(dy, ds, s, weight, seed, *ctx.settings, ctx.shifted)
        dh = dh if dropout else dx
    to_shift, to_bias = found[2] if ctx.shifted else None, found[1] if ctx.bias else None
    return None, dx, dh, to_shift, found[0], to_bias, None, None, None, None, None


def _remember_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, _, seed, ctx.dropout = inputs
    ctx.save_for_backward(seed)


def _sum_gradients(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
    return given, add_dropped(None, given, *ctx.saved_tensors, ctx.dropout), None, None


add_norm.register_autograd(_norm_gradients, setup_context=_remember_norm)
add_dropped.register_autograd(_sum_gradients, setup_context=_remember_sum)
