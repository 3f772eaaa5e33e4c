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
from regard.kernels.fp8.casts import E4M3, E5M2, MULTIPLE, Cast, Format, cast_both
from regard.kernels.fp8.products import product
from regard.kernels.training.cross_entropy import loss_and_gradient, row_parts

UNIT = {E4M3: 8, E5M2: 15}  # a probability of 1 becomes 2 to this power


class Roundings(NamedTuple):
    """Which products are of 8 bits; benchmarks/train_fp8.py compares them."""

    scores: bool = False
    gradients: bool = True
    to_x: Format = E5M2  # of P in dx
    to_weight: Format = E5M2  # of P in dw
    split: bool = True  # add the entry of the true token in full precision
    exact: bool = True  # sum dx over the vocabulary in float32, not in the fast mode of products.py


ROUNDINGS = Roundings()


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
        total, nll = _Fp8TokenLoss.apply(hidden, weight, labels, keep, smoothing, amax, ROUNDINGS)
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
        roundings: Roundings,
    ) -> tuple[Tensor, Tensor]:
        layer = _OutputLayer(weight, amax, roundings)
        total, nll = hidden.new_zeros(2, dtype=torch.float32).unbind()
        d_hidden = torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device)
        d_weight = None
        for rows in row_parts(hidden, len(weight), passes=1):
            part = slice(rows.first, rows.last)
            x, part_keep = hidden[part].to(torch.bfloat16).contiguous(), None if keep is None else keep[part]
            loss_sum, nll_sum, dw = layer.loss_and_gradients(x, labels[part], part_keep, smoothing, d_hidden[part])
            total, nll = total + loss_sum, nll + nll_sum
            d_weight = dw if d_weight is None else d_weight.add_(dw)
        d_weight = torch.zeros_like(weight) if d_weight is None else d_weight.to(weight.dtype)
        ctx.save_for_backward(d_hidden, d_weight)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        return *(g * upstream.to(g.dtype) for g in ctx.saved_tensors), None, None, None, None, None


class _OutputLayer:
    """The products of some rows at a time."""

    def __init__(self, weight: Tensor, amax: Tensor, roundings: Roundings) -> None:
        self.amax, self.roundings, self.weight = amax, roundings, weight
        self.w_cast = cast_both(weight, amax[1], E4M3)
        self.w = None if roundings.scores and roundings.gradients else weight.to(torch.bfloat16)

    def loss_and_gradients(
        self, x: Tensor, labels: Tensor, keep: Tensor | None, smoothing: float, dx: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sums of loss and plain cross-entropy of x (n, p), and dw in float32; write dx (n, p)."""
        x_cast = cast_both(x, self.amax[0], E4M3)
        scores = self.scores(x, x_cast)  # (n, V)
        if not self.roundings.gradients:
            loss_sum, nll_sum, g = loss_and_gradient(scores, labels, keep, smoothing, 0.0, wanted=True)
            dx[:] = g @ self.w  # type: ignore[operator]
            return loss_sum, nll_sum, (g.T @ x).float()  # type: ignore[union-attr]
        softmax = softmax_cast(scores, labels, keep, smoothing, self.roundings)
        (to_x, to_weight), w = self.roundings[2:4], self.w_cast
        to_dx = product(
            softmax.straight, w.transposed, (to_x, E4M3), (self.inverse(to_x), w.inverse),
            dtype=torch.bfloat16, exact=self.roundings.exact,
        )  # fmt: skip
        dw = product(
            softmax.transposed, x_cast.transposed, (to_weight, E4M3), (self.inverse(to_weight), x_cast.inverse),
            dtype=torch.float32, exact=True,
        )  # fmt: skip
        if self.roundings.split:
            add_labels(to_dx, x_cast, w, labels, softmax.at_label, dw, dx)
        else:
            dx[:] = to_dx
        return softmax.loss.sum(), softmax.nll.sum(), dw

    def scores(self, x: Tensor, x_cast: Cast) -> Tensor:
        if not self.roundings.scores:
            assert self.w is not None
            return F.linear(x, self.w)
        factors, inverses = (x_cast.straight, self.w_cast.straight), (x_cast.inverse, self.w_cast.inverse)
        return product(*factors, (E4M3, E4M3), inverses, dtype=torch.bfloat16)

    def inverse(self, form: Format) -> Tensor:
        return torch.full((), 2.0 ** -UNIT[form], device=self.weight.device)


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


def softmax_cast(
    scores: Tensor, labels: Tensor, keep: Tensor | None, smoothing: float, roundings: Roundings
) -> Softmax:
    """Return losses and gradient of scores (n, V) at labels (n,). Rows where `keep` (n,) is False do not count."""
    if not runs_triton(scores.device):
        return softmax_cast_by_torch(scores, labels, keep, smoothing, roundings)
    from regard.kernels.fp8.output_triton import launch_softmax_cast

    return launch_softmax_cast(scores, labels, keep, smoothing, roundings)


def softmax_cast_by_torch(
    scores: Tensor, labels: Tensor, keep: Tensor | None, smoothing: float, roundings: Roundings
) -> Softmax:
    """The same with PyTorch's operations; tests compare the kernels with it."""
    log_p, at = F.log_softmax(scores.float(), dim=-1), labels[:, None]
    nll = -log_p.gather(-1, at)[:, 0]
    loss = (1 - smoothing) * nll - smoothing * log_p.mean(-1)
    kept = torch.ones_like(nll) if keep is None else keep.float()
    g = (log_p.exp() - smoothing / scores.shape[1]) * kept[:, None]
    at_label = g.gather(-1, at)[:, 0] - (1 - smoothing) * kept
    g.scatter_(-1, at, 0.0 if roundings.split else at_label[:, None])
    straight, transposed = (
        (g * 2.0 ** UNIT[form]).to(torch.bfloat16).to(form.dtype).view(torch.uint8) for form in roundings[2:4]
    )
    padded = F.pad(transposed.T, (0, -len(g) % MULTIPLE)).contiguous()
    return Softmax(loss * kept, nll * kept, at_label, straight, padded)
