"""Output layer and cross-entropy with products of 8-bit numbers; training/cross_entropy.py is the same in 16 bits.

E6, E7. The gradient of the scores is softmax minus target. In each row one entry is far larger than the others: that of
the true token, p_t - 1. An 8-bit number rounds it by up to an eighth, and nothing averages this error out. So this
entry is left out of the 8-bit products and added in full precision:

    dx = P w + g_t w[t],   dw = P^T x + (g_t x, summed over the rows of each token t),

where P is the softmax without the true tokens and g_t = p_t - 1. Here x and w are the numbers that were rounded to 8
bits, in both terms: the terms nearly cancel on average, and so do their rounding errors only if the factors are equal.
The entries of P are between 0 and 1, so its scales are constants. P is cast to e5m2, because the many small
probabilities matter together, and e4m3 would round them to 0. Both products sum in float32: the fast mode would cut off
the small terms of sums over the whole vocabulary.

    N tokens that are predicted   n of them at a time   p width of the features   V vocabulary
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.kernels.devices import runs_triton
from regard.kernels.fp8.casts import E4M3, E5M2, MULTIPLE, Cast, cast_both
from regard.kernels.fp8.products import product
from regard.kernels.training.cross_entropy import row_parts

UNIT = 15  # a probability of 1 becomes 2 to this power


class Softmax(NamedTuple):
    """The gradient of some scores (n, V): `straight` (n, V) and `transposed` (V, n) in 8 bits, and the rest.

    `at_label` (n,) is the gradient of the true token's score, which the bytes do not contain.
    """

    loss: Tensor  # (n,)
    nll: Tensor  # (n,)
    at_label: Tensor
    straight: Tensor
    transposed: Tensor  # with columns of zeros at its end, so that their number is a multiple of 16


def fp8_token_loss(
    hidden: Tensor, labels: Tensor, *, weight: Tensor, smoothing: float, keep: Tensor | None, amax: Tensor
) -> tuple[Tensor, Tensor]:
    """Return what `token_loss` of training/cross_entropy.py does, for a layer without bias.

    `amax` (3, 2) has the largest magnitudes of the features and of the weight; see scales.py.
    """
    with torch.autocast(hidden.device.type, enabled=False):
        total, nll = _Fp8TokenLoss.apply(hidden, weight, labels, keep, smoothing, amax)
    return total, nll


class _Fp8TokenLoss(torch.autograd.Function):
    """The loss, whose gradients are computed with it."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        keep: Tensor | None,
        smoothing: float,
        amax: Tensor,
    ) -> tuple[Tensor, Tensor]:
        w = cast_both(weight, amax[1], E4M3)
        total, nll = hidden.new_zeros(2, dtype=torch.float32).unbind()
        d_hidden = torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device)
        d_weight = None
        for rows in row_parts(hidden, len(weight), passes=1):
            part = slice(rows.first, rows.last)
            x, part_keep = hidden[part].to(torch.bfloat16).contiguous(), None if keep is None else keep[part]
            loss_sum, nll_sum, dw = _loss_and_gradients(
                x, w, labels[part], part_keep, smoothing, amax[0], d_hidden[part]
            )
            total, nll = total + loss_sum, nll + nll_sum
            d_weight = dw if d_weight is None else d_weight.add_(dw)
        d_weight = torch.zeros_like(weight) if d_weight is None else d_weight.to(weight.dtype)
        ctx.save_for_backward(d_hidden, d_weight)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        return *(g * upstream.to(g.dtype) for g in ctx.saved_tensors), None, None, None, None


def _loss_and_gradients(
    x: Tensor, w: Cast, labels: Tensor, keep: Tensor | None, smoothing: float, amax: Tensor, dx: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sums of loss and plain cross-entropy of x (n, p), and dw in float32; write dx (n, p)."""
    x_cast = cast_both(x, amax, E4M3)
    scores = product(
        x_cast.straight, w.straight, (E4M3, E4M3), (x_cast.inverse, w.inverse), dtype=torch.bfloat16
    )  # (n, V)
    softmax = softmax_cast(scores, labels, keep, smoothing)
    inverse = torch.full((), 2.0**-UNIT, device=x.device)
    to_dx = product(
        softmax.straight, w.transposed, (E5M2, E4M3), (inverse, w.inverse), dtype=torch.bfloat16, exact=True
    )
    dw = product(
        softmax.transposed, x_cast.transposed, (E5M2, E4M3), (inverse, x_cast.inverse), dtype=torch.float32, exact=True
    )
    add_labels(to_dx, x_cast, w, labels, softmax.at_label, dw, dx)
    return softmax.loss.sum(), softmax.nll.sum(), dw


def add_labels(
    product: Tensor, x: Cast, weight: Cast, labels: Tensor, at_label: Tensor, dw: Tensor, dx: Tensor
) -> None:
    """Write product + g_t w[t] to dx (n, p), and add g_t x to the rows t of dw (V, p); both casts are e4m3."""
    in_any_order = not torch.are_deterministic_algorithms_enabled()
    if runs_triton(dx.device):
        from regard.kernels.fp8.output_triton import launch_add_labels

        launch_add_labels(product, x, weight, labels, at_label, dw if in_any_order else None, dx)
        if in_any_order:
            return
    else:
        dx[:] = product.float() + at_label[:, None] * numbers(weight)[labels]
    dw.index_add_(0, labels, at_label[:, None] * numbers(x))


def numbers(cast: Cast) -> Tensor:
    """Return the numbers of a cast to e4m3, in float32."""
    return cast.straight.view(E4M3.dtype).float() * cast.inverse


def softmax_cast(scores: Tensor, labels: Tensor, keep: Tensor | None, smoothing: float) -> Softmax:
    """Return losses and gradient of scores (n, V) at labels (n,). Rows where `keep` (n,) is False do not count."""
    if not runs_triton(scores.device):
        return softmax_cast_by_torch(scores, labels, keep, smoothing)
    from regard.kernels.fp8.output_triton import launch_softmax_cast

    return launch_softmax_cast(scores, labels, keep, smoothing)


def softmax_cast_by_torch(scores: Tensor, labels: Tensor, keep: Tensor | None, smoothing: float) -> Softmax:
    """The same with PyTorch's operations; tests compare the kernels with it."""
    log_p, at = F.log_softmax(scores.float(), dim=-1), labels[:, None]
    nll = -log_p.gather(-1, at)[:, 0]
    loss = (1 - smoothing) * nll - smoothing * log_p.mean(-1)
    counted = torch.ones_like(nll) if keep is None else keep.float()
    g = (log_p.exp() - smoothing / scores.shape[1]) * counted[:, None]
    at_label = g.gather(-1, at)[:, 0] - (1 - smoothing) * counted
    straight = (g.scatter_(-1, at, 0.0) * 2.0**UNIT).to(torch.bfloat16).to(E5M2.dtype).view(torch.uint8)
    padded = F.pad(straight.T, (0, -len(g) % MULTIPLE)).contiguous()
    return Softmax(loss * counted, nll * counted, at_label, straight, padded)
