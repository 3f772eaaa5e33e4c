"""ReLU or GELU, and dropout, of a feed-forward net's inner layer, as one Triton kernel each way, for NVIDIA GPUs.

Vaswani et al. 2017, equation 2; Hendrycks & Gimpel 2016; E2. This is the widest tensor of a block. With ReLU,
a result is positive only if its input was positive and was not dropped, so the backward pass needs one bit per number.
With GELU it needs the input, and generates the dropout mask again. The backward kernel also sums the gradient of the
bias of the product before.
Both kernels run from the last row to the first: the product before wrote the last rows last, so they are still in the
GPU's cache, and the product after starts with the first rows. Tests compare the kernels with the module in Triton's
interpreter.

    R rows: all tokens   d_ff inner width
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

FORWARD, BACKWARD, COLUMNS = 16, 8, 256  # rows and columns that a program takes at a time
PROGRAMS = 8  # backward, on a processor of the GPU


@triton.jit
def gelu(x):
    """GELU of gelu_tanh, x sigmoid(z) with z = 2 sqrt(2/pi) (x + 0.044715 x^3), and its derivative.

    1/u is rsqrt(u u): an instruction, where a division is six, and these kernels wait for instructions too.
    """
    square = x * x
    u = 1 + tl.exp2(x * (-2.302208198 - 0.1029432396 * square))  # -z log2(e)
    gate = tl.rsqrt(u * u)
    slope = x * (1.5957691216 + 0.2140644488 * square)  # x dz/dx
    return x * gate, gate + gate * (slope - gate * slope)


@triton.jit
def _hidden(
    h,
    seed,
    out,
    active_bits,  # (R, d_ff / 8) with ReLU: the bits of 8 numbers in a byte
    rows,
    width,
    dropped,
    inverse_keep,
    RELU: tl.constexpr,
    DROP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Process some columns of some rows."""
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    r = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS + tl.arange(0, ROWS)
    inside = (r < rows)[:, None] & (at < width)[None, :]
    where = r.to(tl.int64)[:, None] * width + at[None, :]
    x = tl.load(h + where, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        x = tl.where(x <= 0.0, 0.0, x)  # NaN stays NaN
    else:
        x, _ = gelu(x)
    if DROP:
        x = tl.where(kept(tl.load(seed), random_row(r), dropped, ROWS, COLUMNS), x * inverse_keep, 0.0)
    tl.store(out + where, x.to(out.dtype.element_ty), mask=inside)
    if RELU:
        bits = tl.reshape((x > 0.0).to(tl.int32), (ROWS, COLUMNS // 8, 8)) << tl.arange(0, 8)[None, None, :]
        offset, exists = _bytes(r, rows, width, COLUMNS)
        tl.store(active_bits + offset, tl.sum(bits, 2).to(tl.uint8), mask=exists)


@triton.jit
def random_row(r):
    """Return the indices of these parts of rows for the random numbers; no two parts share one."""
    return r * tl.num_programs(1) + tl.program_id(1)


@triton.jit
def _bytes(r, rows, width, COLUMNS: tl.constexpr):
    """Return the offsets of the bits of these rows and columns, (ROWS, COLUMNS / 8), and whether they exist."""
    at, across = tl.program_id(1) * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8), tl.cdiv(width, 8)
    return r.to(tl.int64)[:, None] * across + at[None, :], (r < rows)[:, None] & (at < across)[None, :]


@triton.jit
def _hidden_back(
    grad_out,
    before,  # h, or with ReLU the bits
    seed,
    dh,
    sums,
    rows,
    width,
    dropped,
    inverse_keep,
    RELU: tl.constexpr,
    DROP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Process some columns of many rows; the sum over them is a part of the gradient of the bias."""
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    if DROP and not RELU:
        key = tl.load(seed)
    to_bias = tl.zeros((ROWS, COLUMNS), tl.float32)
    for back in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        r = (tl.cdiv(rows, ROWS) - 1 - back) * ROWS + tl.arange(0, ROWS)
        inside = (r < rows)[:, None] & (at < width)[None, :]
        where = r.to(tl.int64)[:, None] * width + at[None, :]
        step = tl.load(grad_out + where, mask=inside, other=0.0).to(tl.float32)
        if DROP:
            step *= inverse_keep
        if RELU:
            offset, exists = _bytes(r, rows, width, COLUMNS)
            eight = tl.load(before + offset, mask=exists, other=0).to(tl.int32)[:, :, None]
            bits = tl.reshape((eight >> tl.arange(0, 8)[None, None, :]) & 1, (ROWS, COLUMNS))
            step = tl.where(bits != 0, step, 0.0)
        else:
            x = tl.load(before + where, mask=inside, other=0.0).to(tl.float32)
            step *= gelu(x)[1]
            if DROP:
                step = tl.where(kept(key, random_row(r), dropped, ROWS, COLUMNS), step, 0.0)
        to_bias += step
        tl.store(dh + where, step.to(dh.dtype.element_ty), mask=inside)
    tl.store(sums + tl.program_id(0) * width + at, tl.sum(to_bias, 0), mask=at < width)


@custom_op("regard::activated", mutates_args=())
def activated(h: Tensor, bias: Tensor | None, seed: Tensor | None, dropout: float, relu: bool) -> tuple[Tensor, Tensor]:
    """h (…, d_ff) -> dropout(f(h)), f is GELU by its approximation, or if `relu` ReLU.

    `bias` (d_ff,) is part of h, and gets its gradient here. With ReLU there is also which of the numbers are above
    zero, as (…, d_ff / 8) bytes.
    """
    h = h.contiguous()
    out, active_bits, rows, width = torch.empty_like(h), _empty_bits(h, relu), h.numel() // h.shape[-1], h.shape[-1]
    _hidden[triton.cdiv(rows, FORWARD), triton.cdiv(width, COLUMNS)](
        h,
        h if seed is None else seed,
        out,
        active_bits,
        rows,
        width,
        *share(dropout),
        RELU=relu,
        DROP=dropout > 0,
        ROWS=FORWARD,
        COLUMNS=COLUMNS,
        num_warps=4,
    )
    return out, active_bits


@custom_op("regard::activated_back", mutates_args=())
def activated_back(
    grad_out: Tensor, before: Tensor, seed: Tensor | None, dropout: float, relu: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients of h, and of the bias in float32; `before` is h, or if `relu` the bits."""
    grad_out = grad_out.contiguous()
    dh, rows, width = torch.empty_like(grad_out), grad_out.numel() // grad_out.shape[-1], grad_out.shape[-1]
    across = triton.cdiv(width, COLUMNS)
    processors = torch.cuda.get_device_properties(grad_out.device).multi_processor_count if grad_out.is_cuda else 1
    down = min(triton.cdiv(rows, BACKWARD), triton.cdiv(processors * PROGRAMS, across))
    sums = torch.empty(down, width, device=grad_out.device)
    _hidden_back[down, across](
        grad_out,
        before.contiguous(),
        grad_out if seed is None else seed,
        dh,
        sums,
        rows,
        width,
        *share(dropout),
        RELU=relu,
        DROP=dropout > 0,
        ROWS=BACKWARD,
        COLUMNS=COLUMNS,
        num_warps=4,
    )
    return dh, add_up(sums)


def _empty_bits(h: Tensor, relu: bool) -> Tensor:
    return h.new_empty(*h.shape[:-1], (h.shape[-1] + 7) // 8 if relu else 0, dtype=torch.uint8)


def _contiguous(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@activated.register_fake
def _(h: Tensor, bias: Tensor | None, seed: Tensor | None, dropout: float, relu: bool) -> tuple[Tensor, Tensor]:
    return _contiguous(h), _empty_bits(h, relu)


@activated_back.register_fake
def _(grad_out: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return _contiguous(grad_out), grad_out.new_empty(grad_out.shape[-1], dtype=torch.float32)


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    h, bias, seed, *ctx.settings = inputs
    *_, relu = ctx.settings
    ctx.bias = None if bias is None else bias.dtype
    ctx.save_for_backward(output[1] if relu else h, seed)
    ctx.set_materialize_grads(False)  # bits have no gradient


def _gradients(ctx: Any, grad_out: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if grad_out is None:
        return (None,) * 5
    dh, to_bias = activated_back(grad_out, *ctx.saved_tensors, *ctx.settings)
    return dh, None if ctx.bias is None else to_bias.to(ctx.bias), None, None, None


activated.register_autograd(_gradients, setup_context=_save_inputs)
