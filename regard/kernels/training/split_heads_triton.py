"""Split queries, keys and values from one product; one Triton kernel joins their gradients, for NVIDIA GPUs.

D11. Attention returns separate gradients of q, k and v; the product before needs them in one tensor. The kernel that
copies them also sums the gradient of the bias, because it reads all summands. Tests compare it with PyTorch in Triton's
interpreter.

    B batch   T tokens   H heads   d width of a head
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.library import custom_op
from triton import language as tl

from regard.kernels.training.row_sums_triton import add_up

ROWS, COLUMNS = 8, 256  # that a program takes at a time
PROGRAMS = 8  # on a processor of the GPU


class CutHeads(torch.autograd.Function):
    """x (B, T, 3 H d), the product with its bias -> q, k, v (B, H, T, d), views of it; the bias gets its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, heads: int) -> tuple[Tensor, ...]:
        ctx.dtype = bias.dtype
        return tuple(part.transpose(1, 2) for part in x.view(*x.shape[:2], 3 * heads, -1).split(heads, dim=2))

    @staticmethod
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor, None]:
        dx, to_bias = joined(dq, dk, dv)
        return dx, to_bias.to(ctx.dtype), None


@triton.jit
def read_part(part, batch, head, token, r, inside, at, length, D: tl.constexpr):
    """Load some columns of some tokens of one gradient with these strides."""
    rows = (r // length).to(tl.int64) * batch + (r % length) * token
    columns = (at // D) * head + at % D
    return tl.load(part + rows[:, None] + columns[None, :], mask=inside, other=0.0)


@triton.jit
def _join(
    dq,
    dk,
    dv,
    dx,
    sums,  # (programs down, 3 H d)
    rows,
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
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Process some columns of one of the three gradients, for several groups of tokens."""
    which, at = tl.program_id(1), tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        r = block * ROWS + tl.arange(0, ROWS)
        inside = (r < rows)[:, None] & (at < WIDTH)[None, :]
        if which == 0:
            x = read_part(dq, q_batch, q_head, q_token, r, inside, at, length, D)
        elif which == 1:
            x = read_part(dk, k_batch, k_head, k_token, r, inside, at, length, D)
        else:
            x = read_part(dv, v_batch, v_head, v_token, r, inside, at, length, D)
        total += x.to(tl.float32)
        where = r.to(tl.int64)[:, None] * (3 * WIDTH) + (which * WIDTH + at)[None, :]
        tl.store(dx + where, x, mask=inside)
    row_sums = sums + (tl.program_id(0) * 3 + which) * WIDTH + at
    tl.store(row_sums, tl.sum(total, 0), mask=at < WIDTH)


@custom_op("regard::joined", mutates_args=())
def joined(dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
    """Join three tensors (B, H, T, d) to (B, T, 3 H d), and sum it over all tokens in float32."""
    parts = [gradient if gradient.stride(3) == 1 else gradient.contiguous() for gradient in (dq, dk, dv)]
    B, H, T, d = dq.shape
    processors = torch.cuda.get_device_properties(dq.device).multi_processor_count if dq.is_cuda else 1
    across = triton.cdiv(H * d, COLUMNS)
    down = max(1, min(triton.cdiv(B * T, ROWS), processors * PROGRAMS // (3 * across)))
    dx, sums = dq.new_empty(B, T, 3 * H * d), torch.empty(down, 3 * H * d, device=dq.device)
    strides = [stride for gradient in parts for stride in gradient.stride()[:3]]
    _join[(down, 3, across)](
        *parts, dx, sums, B * T, T, *strides, WIDTH=H * d, D=d, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=4
    )
    return dx, add_up(sums)


@joined.register_fake
def _(dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
    B, H, T, d = dq.shape
    return dq.new_empty(B, T, 3 * H * d), dq.new_empty(3 * H * d, dtype=torch.float32)
