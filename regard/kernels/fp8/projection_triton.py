"""Queries, keys and values from one product of 8-bit numbers; their gradients are joined and cast by one kernel.

B batch   T tokens   H heads   d width of a head   p model width
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from regard.kernels.fp8.heads_triton import join_cast
from regard.kernels.fp8.linear import backward_products, fp8_linear


class Fp8Heads(torch.autograd.Function):
    """x (B, T, p), weight (3 H d, p), bias -> q, k, v (B, H, T, d)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, heads: int, amax: Tensor) -> tuple[Tensor, ...]:
        y, *casts = fp8_linear(x, weight, bias, amax)
        ctx.save_for_backward(*casts, amax)
        ctx.dtypes = x.dtype, weight.dtype, bias.dtype
        return tuple(part.transpose(1, 2) for part in y.view(*y.shape[:2], 3 * heads, -1).split(heads, dim=2))

    @staticmethod
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor | None, ...]:
        x_dtype, weight_dtype, bias_dtype = ctx.dtypes
        dx, dw, to_bias = fp8_heads_back(dq, dk, dv, *ctx.saved_tensors, weight_dtype)
        return dx.to(x_dtype), dw, to_bias.to(bias_dtype), None, None


# It changes `amax` without saying so; see linear.py.
@custom_op("regard::fp8_heads_back", mutates_args=())
def fp8_heads_back(
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    x_transposed: Tensor,
    x_inverse: Tensor,
    w_transposed: Tensor,
    w_inverse: Tensor,
    amax: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x (B, T, p) in bfloat16, of the weight in `dtype` and of the bias in float32."""
    B, _, T, _ = dq.shape
    g, to_bias = join_cast(dq, dk, dv, amax[2])
    dx, dw = backward_products(g, (x_transposed, x_inverse, w_transposed, w_inverse), dtype)
    return dx.view(B, T, -1), dw, to_bias


@fp8_heads_back.register_fake
def _(dq: Tensor, dk: Tensor, dv: Tensor, x_transposed: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    (B, H, T, d), p = dq.shape, len(x_transposed)
    dx, dw = dq.new_empty(B, T, p, dtype=torch.bfloat16), dq.new_empty(3 * H * d, p, dtype=rest[-1])
    return dx, dw, dq.new_empty(3 * H * d, dtype=torch.float32)
