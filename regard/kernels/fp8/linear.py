"""A linear layer with products of 8-bit numbers, forward and backward.

Micikevicius et al. 2022. The three products of a layer are

    y = x w^T + bias,   dx = g w,   dw = g^T x,     x (R, K), w (N, K), g (R, N) the gradient of y.

x, w and g are cast once each, straight and transposed (casts.py). The sums over the inputs and outputs of the layer run
in the GPU's fast mode, the sum over all tokens in the exact one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.library import custom_op
from torch.nn import functional as F

from regard.kernels.fp8.casts import E4M3, E5M2, Cast, cast_both, empty_cast
from regard.kernels.fp8.products import product
from regard.kernels.fp8.scales import training_scales
from regard.kernels.fused_class import FusedClass


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, amax: Tensor | None) -> Tensor:
    """Return x w^T + bias (…, N), by products of 8 bits if there is an `amax` (3, 2) of x, w and the gradient."""
    if amax is None:
        return F.linear(x, weight, bias)
    return fp8_linear(x, weight, bias, amax)[0]


class Fp8Linear(FusedClass, nn.Linear):
    """nn.Linear with products of 8 bits in training; `fp8_amax` is set by enable.py."""

    traits: frozenset[str] = frozenset()

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias, training_scales(self))


def linear_with_constant_bias(layer: nn.Linear, x: Tensor) -> Tensor:
    """Return layer(x) with no gradient for the bias: another kernel computes it."""
    bias = None if layer.bias is None else layer.bias.detach()
    return linear(x, layer.weight, bias, training_scales(layer))


def forward_product(x: Cast, w: Cast, bias: Tensor | None) -> Tensor:
    """Return x w^T + bias (R, N) in bfloat16."""
    half = None if bias is None else bias.to(torch.bfloat16)
    return product(x.straight, w.straight, (E4M3, E4M3), (x.inverse, w.inverse), dtype=torch.bfloat16, bias=half)


def backward_products(g: Cast, factors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return dx = g w (R, K) in bfloat16 and dw = g^T x (N, K) in `dtype`.

    `factors` are the transposed bytes and the inverse scale of x, then of w.
    """
    x_transposed, x_inverse, w_transposed, w_inverse = factors
    dx = product(g.straight, w_transposed, (E5M2, E4M3), (g.inverse, w_inverse), dtype=torch.bfloat16)
    dw = product(g.transposed, x_transposed, (E5M2, E4M3), (g.inverse, x_inverse), dtype=dtype, exact=True)
    return dx, dw


# The operators change `amax` without saying so: torch gives no gradients to an operator that says so, and nothing else
# in a step reads these numbers.
@custom_op("regard::fp8_linear", mutates_args=())
def fp8_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, amax: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x (…, K) -> y (…, N) in bfloat16, and for the backward pass x and w: transposed bytes and inverse scales."""
    x_cast, w_cast = cast_both(x.flatten(0, -2), amax[0], E4M3), cast_both(weight, amax[1], E4M3)
    y = forward_product(x_cast, w_cast, bias)
    return y.unflatten(0, x.shape[:-1]), *x_cast[1:], *w_cast[1:]


@custom_op("regard::fp8_linear_back", mutates_args=())
def fp8_linear_back(
    grad_out: Tensor,
    x_transposed: Tensor,
    x_inverse: Tensor,
    w_transposed: Tensor,
    w_inverse: Tensor,
    amax: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x (…, K) in bfloat16 and of w (N, K) in `dtype`."""
    g = cast_both(grad_out.flatten(0, -2), amax[2], E5M2)
    dx, dw = backward_products(g, (x_transposed, x_inverse, w_transposed, w_inverse), dtype)
    return dx.unflatten(0, grad_out.shape[:-1]), dw


@fp8_linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, amax: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    x_cast = empty_cast(x.numel() // x.shape[-1], x.shape[-1], x.device)
    w_cast = empty_cast(weight.shape[0], weight.shape[1], x.device)
    return x.new_empty(*x.shape[:-1], len(weight), dtype=torch.bfloat16), *x_cast[1:], *w_cast[1:]


@fp8_linear_back.register_fake
def _(grad_out: Tensor, x_transposed: Tensor, x_inverse: Tensor, w_transposed: Tensor, *rest: Any) -> tuple:
    K, N = w_transposed.shape[0], grad_out.shape[-1]
    dx = grad_out.new_empty(*grad_out.shape[:-1], K, dtype=torch.bfloat16)
    return dx, grad_out.new_empty(N, K, dtype=rest[-1])


def _save_casts(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, amax = inputs
    ctx.dtypes = x.dtype, weight.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(*output[1:], amax)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad_out: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if grad_out is None:
        return (None,) * 4
    x_dtype, weight_dtype, bias_dtype = ctx.dtypes
    dx, dw = fp8_linear_back(grad_out, *ctx.saved_tensors, weight_dtype)
    to_bias = bias_gradient(grad_out, bias_dtype) if ctx.needs_input_grad[2] else None
    return dx.to(x_dtype), dw, to_bias, None


def bias_gradient(grad_out: Tensor, dtype: torch.dtype | None) -> Tensor | None:
    return None if dtype is None else grad_out.flatten(0, -2).sum(0, dtype=torch.float32).to(dtype)


fp8_linear.register_autograd(_gradients, setup_context=_save_casts)
