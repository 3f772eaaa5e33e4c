"""A feed-forward net with products of 8-bit numbers: a = dropout(f(x W_1 + b_1)), y = a W_2 + b_2.

The kernels that compute a and the gradient of h = x W_1 + b_1 write them as 8-bit numbers (hidden_triton.py), so both
products and what is between them are one operator. It runs on NVIDIA GPUs only.

    p width   d_ff inner width
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from regard.kernels.fp8.casts import E4M3, E5M2, cast_both, empty_cast
from regard.kernels.fp8.hidden_triton import hidden_cast, hidden_cast_back
from regard.kernels.fp8.linear import backward_products, bias_gradient, forward_product


# The operators change `amax` without saying so; see linear.py.
@custom_op("regard::fp8_feed_forward", mutates_args=())
def fp8_feed_forward(
    x: Tensor,
    up: Tensor,
    up_bias: Tensor | None,
    down: Tensor,
    down_bias: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    relu: bool,
    up_amax: Tensor,
    down_amax: Tensor,
) -> list[Tensor]:
    """x (…, p), up (d_ff, p), down (p, d_ff) -> y (…, p) in bfloat16, then h and the casts for the backward pass."""
    x_cast, up_cast = cast_both(x.flatten(0, -2), up_amax[0], E4M3), cast_both(up, up_amax[1], E4M3)
    h = forward_product(x_cast, up_cast, up_bias)
    a_cast = hidden_cast(h, seed, dropout, relu, down_amax[0])
    down_cast = cast_both(down, down_amax[1], E4M3)
    y = forward_product(a_cast, down_cast, down_bias).unflatten(0, x.shape[:-1])
    return [y, h, *x_cast[1:], *up_cast[1:], *a_cast[1:], *down_cast[1:]]


@custom_op("regard::fp8_feed_forward_back", mutates_args=())
def fp8_feed_forward_back(
    grad_out: Tensor,
    saved: list[Tensor],
    seed: Tensor | None,
    dropout: float,
    relu: bool,
    up_amax: Tensor,
    down_amax: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x in bfloat16, of W_1 and W_2 in `dtype`, and of b_1 in float32."""
    h, x_and_up, a_and_down = saved[0], saved[1:5], saved[5:9]
    g = cast_both(grad_out.flatten(0, -2), down_amax[2], E5M2)
    da, to_down = backward_products(g, a_and_down, dtype)
    dh, to_bias = hidden_cast_back(da, h, seed, dropout, relu, up_amax[2])
    dx, to_up = backward_products(dh, x_and_up, dtype)
    return dx.unflatten(0, grad_out.shape[:-1]), to_up, to_down, to_bias


@fp8_feed_forward.register_fake
def _(x: Tensor, up: Tensor, up_bias: Tensor | None, down: Tensor, *_: Any) -> list[Tensor]:
    rows, (d_ff, p) = x.numel() // x.shape[-1], up.shape
    casts = (empty_cast(count, width, x.device)[1:] for count, width in ((rows, p), (d_ff, p), (rows, d_ff), (p, d_ff)))
    y, h = (x.new_empty(shape, dtype=torch.bfloat16) for shape in (x.shape, (rows, d_ff)))
    return [y, h, *(part for cast in casts for part in cast)]


@fp8_feed_forward_back.register_fake
def _(grad_out: Tensor, saved: list[Tensor], *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    p, d_ff, dtype = grad_out.shape[-1], saved[0].shape[1], rest[-1]
    weights = (grad_out.new_empty(shape, dtype=dtype) for shape in ((d_ff, p), (p, d_ff)))
    bias = grad_out.new_empty(d_ff, dtype=torch.float32)
    return grad_out.new_empty(grad_out.shape, dtype=torch.bfloat16), *weights, bias  # type: ignore[return-value]


def _save_casts(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, up, up_bias, _, down_bias, seed, ctx.dropout, ctx.relu, up_amax, down_amax = inputs
    ctx.dtypes = x.dtype, up.dtype, *(None if bias is None else bias.dtype for bias in (up_bias, down_bias))
    ctx.save_for_backward(*output[1:], seed, up_amax, down_amax)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, gradients: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    grad_out = gradients[0]
    if grad_out is None:
        return (None,) * 10
    x_dtype, weight_dtype, up_bias_dtype, down_bias_dtype = ctx.dtypes
    *saved, seed, up_amax, down_amax = ctx.saved_tensors
    dx, to_up, to_down, to_bias = fp8_feed_forward_back(
        grad_out, saved, seed, ctx.dropout, ctx.relu, up_amax, down_amax, weight_dtype
    )
    to_up_bias = to_bias.to(up_bias_dtype) if ctx.needs_input_grad[2] else None
    to_down_bias = bias_gradient(grad_out, down_bias_dtype) if ctx.needs_input_grad[4] else None
    return dx.to(x_dtype), to_up, to_up_bias, to_down, to_down_bias, None, None, None, None, None


fp8_feed_forward.register_autograd(_gradients, setup_context=_save_casts)
