"""Residual, dropout and norm of a block, as one Triton kernel forward and one backward, for NVIDIA GPUs.

Vaswani et al. 2017, sections 3.1 and 5.4; E1, E3. The kernels are in residual_kernels_triton.py. Tests compare them
with the modules in Triton's interpreter.

    R rows: all tokens   p width
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.library import custom_op

from regard.kernels.training.dropout_triton import share
from regard.kernels.training.residual_kernels_triton import add_kernel, norm_back_kernel, norm_kernel
from regard.kernels.training.row_sums_triton import add_up

NUMBERS_PER_WARP = 512  # of each tensor: 16 per thread
FORWARD_NUMBERS, BACKWARD_NUMBERS = 1024, 512  # of one row that a warp may process
WARPS_PER_PROCESSOR, REGISTERS_PER_THREAD = 16, 128  # in the backward kernel: all that a multiprocessor has
STAGES = 3  # of the backward kernel's pipeline: current rows and prefetched ones


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
    norm_kernel[(triton.cdiv(rows, options["ROWS"]),)](
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
    norm_back_kernel[(programs,)](
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
    add_kernel[(triton.cdiv(rows, options["ROWS"]),)](
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
