"""Output layer and cross-entropy in one function that never stores all scores over the vocabulary.

E6, E7. The scores (N, V) are by far the largest tensor of a training step. They are computed for some rows at a time
and used at once for the loss, its gradient in closed form (softmax minus target), and the gradients of the features and
of the table. No tensor of their size is kept for the backward pass.

    N tokens that are predicted   p width of the features   V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.kernels.devices import runs_triton

FUSED = (torch.float32, torch.bfloat16, torch.float16)
GPU_MEMORY_DIVISOR = 64  # 1/64 of a GPU's memory is for scores; each chunk reads and writes the table's gradient
MAX_SCORES = 2**29  # at a time on other devices
TILE_ROWS = 128  # of a matrix product that a GPU processes together
MAX_CPU_SCORES = 2**22  # at a time: 16 MB in float32, about the size of the caches, and faster than all at once


def token_loss(
    hidden: Tensor,
    labels: Tensor,
    *,
    weight: Tensor,
    bias: Tensor | None = None,
    smoothing: float = 0.0,
    r_drop: float = 0.0,
    keep: Tensor | None = None,
    kernels: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy of hidden (N, p), labels (N,), weight (V, p), with label smoothing and without.

    Szegedy et al. 2016, section 7: the true token gets 1 - smoothing, all V tokens share the rest. Rows where `keep`
    (N,) is False do not count.

    With `r_drop`, alpha of Liang et al. 2021, the first half of the rows is one pass and the second half the same
    tokens in another pass, with other units dropped. The loss penalises their disagreement; it is half of eq. 4,

        1/2 (L(P) + L(Q)) + alpha/4 (KL(P || Q) + KL(Q || P)),    L the cross-entropy, P and Q the passes,

    so that it equals the plain loss if the passes agree, and the learning rate keeps its meaning.

    `kernels=False` computes everything with PyTorch's operations, also where the Triton kernel could run.
    """
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"smoothing must be at least 0 and less than 1, got {smoothing}")
    if r_drop < 0.0:
        raise ValueError(f"r_drop must be a number from 0, got {r_drop}")
    kind, dtype = hidden.device.type, weight.dtype
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    with torch.autocast(kind, enabled=False):  # a sum of thousands of terms needs float32
        total, nll = _TokenLoss.apply(hidden, weight, bias, labels, keep, smoothing, r_drop / 2, dtype, kernels)
    return (total / 2, nll / 2) if r_drop else (total, nll)


def scores_memory(count: int, weight: Tensor, dtype: torch.dtype, *, r_drop: float, kernels: bool = True) -> int:
    """Return the bytes of that many scores and everything computed from them; only one chunk exists at a time."""
    if kernels and fused_fits(weight[:1].to(dtype)):
        each = dtype.itemsize
    else:  # scores, log-probabilities and gradient; in half precision a second copy of the gradient
        wide = at_least_float32(dtype).itemsize
        each = dtype.itemsize + 2 * wide + (dtype.itemsize if dtype.itemsize < wide else wide // 2 * (r_drop > 0))
    return min(count, _max_scores(weight)) * each


class _TokenLoss(torch.autograd.Function):
    """The loss, whose gradients are computed with it; `pull` is the weight of the divergence between two passes."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        keep: Tensor | None,
        smoothing: float,
        pull: float,
        dtype: torch.dtype,
        kernels: bool,
    ) -> tuple[Tensor, Tensor]:
        for_hidden, for_weight, for_bias = ctx.needs_input_grad[:3]
        w, b = weight.to(dtype), None if bias is None else bias.to(dtype)
        total, nll = hidden.new_zeros(2, dtype=at_least_float32(dtype)).unbind()
        d_hidden = torch.empty_like(hidden) if for_hidden else None
        d_weight = torch.zeros_like(weight) if for_weight else None
        d_bias = torch.zeros_like(bias) if for_bias and bias is not None else None
        for rows in row_parts(hidden, len(weight), passes=2 if pull else 1):
            x = rows.of(hidden).to(dtype)
            scores = F.linear(x, w, b)  # (n, V)
            keep_rows = None if keep is None else rows.of(keep)
            wanted = any((for_hidden, for_weight, for_bias))
            loss_sum, plain, gradient = loss_and_gradient(
                scores, rows.of(labels), keep_rows, smoothing, pull, wanted=wanted, kernels=kernels
            )
            total, nll = total + loss_sum, nll + plain
            if gradient is None:
                continue
            if d_hidden is not None:
                rows.put(d_hidden, gradient @ w)
            if d_weight is not None:
                d_weight += gradient.T @ x
            if d_bias is not None:
                d_bias += gradient.sum(0)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        gradients = (None if g is None else g * upstream.to(g.dtype) for g in saved)
        return *gradients, None, None, None, None, None, None


class RowRange:
    """A range of rows, the same in each pass."""

    def __init__(self, passes: int, first: int, last: int) -> None:
        self.passes, self.first, self.last = passes, first, last

    def of(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (self.passes, -1))[:, self.first : self.last].flatten(0, 1)

    def put(self, x: Tensor, values: Tensor) -> None:
        x.unflatten(0, (self.passes, -1))[:, self.first : self.last] = values.unflatten(0, (self.passes, -1))


def row_parts(hidden: Tensor, vocabulary: int, *, passes: int) -> Iterator[RowRange]:
    """Divide N rows, the same in each pass, so that no part has too many scores."""
    each, scores = len(hidden) // passes, _max_scores(hidden)
    if len(hidden) == 0:
        return
    if len(hidden) * vocabulary <= scores:  # one part, also if N is a symbol in compiled code
        yield RowRange(passes, 0, each)
        return
    most = max(1, scores // (vocabulary * passes))
    most = most // TILE_ROWS * TILE_ROWS or most
    even = math.ceil(each / math.ceil(each / most))  # parts of equal size
    most = min(most, math.ceil(even / TILE_ROWS) * TILE_ROWS)
    for first in range(0, each, most):
        yield RowRange(passes, first, min(first + most, each))


def _max_scores(like: Tensor) -> int:
    """Return the largest number of scores at a time."""
    if like.is_cuda:
        return (
            torch.cuda.get_device_properties(like.device).total_memory // GPU_MEMORY_DIVISOR // torch.bfloat16.itemsize
        )
    return MAX_CPU_SCORES if like.device.type == "cpu" else MAX_SCORES


def loss_and_gradient(
    scores: Tensor,
    labels: Tensor,
    keep: Tensor | None,
    smoothing: float,
    pull: float,
    *,
    wanted: bool,
    kernels: bool = True,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the sums of loss and plain cross-entropy of scores (n, V), labels (n,), and d loss / d scores if wanted.

    The gradient has the dtype of the scores and may overwrite them. With a weight `pull`, the rows are two
    passes, and pull (KL(P || Q) + KL(Q || P)) is part of the loss.
    """
    if kernels and fused_fits(scores):
        from regard.kernels.training.cross_entropy_triton import fused_loss_and_gradient

        return fused_loss_and_gradient(scores, labels, keep, smoothing, pull, wanted=wanted)
    log_p = F.log_softmax(scores.to(at_least_float32(scores.dtype)), dim=-1)  # (n, V)
    nll = -log_p.gather(-1, labels[:, None])  # (n, 1)
    loss, divergence = nll, None
    if smoothing:
        loss = (1 - smoothing) * nll - smoothing * log_p.mean(-1, keepdim=True)
    if pull:
        divergence = _divergences(log_p)  # (n, 1)
        loss = loss + pull * divergence
    if keep is not None:
        loss, nll = (rows.masked_fill(~keep[:, None], 0.0) for rows in (loss, nll))
    if not wanted:
        return loss.sum(), nll.sum(), None
    gradient = log_p.exp()
    if divergence is not None:
        _add_pull(gradient, log_p, divergence, pull)
    if smoothing:
        gradient -= smoothing / log_p.shape[-1]
    gradient.scatter_add_(-1, labels[:, None], gradient.new_full((len(labels), 1), smoothing - 1))
    if keep is not None:
        gradient *= keep[:, None]
    return loss.sum(), nll.sum(), gradient.to(scores.dtype)


def fused_fits(scores: Tensor) -> bool:
    """Whether the Triton kernel can compute the loss of these scores; on a CPU it would only be interpreted."""
    return scores.is_cuda and scores.dtype in FUSED and runs_triton(scores.device)


def _divergences(log_p: Tensor) -> Tensor:
    """Return KL(P || Q) of each token, then KL(Q || P), (n, 1), for log_p (n, V) of two passes with n/2 tokens."""
    p, q = log_p.chunk(2)
    gap = p - q  # (n/2, V)
    return torch.cat([p.exp().mul_(gap).sum(-1, keepdim=True), -q.exp().mul_(gap).sum(-1, keepdim=True)])


def _add_pull(gradient: Tensor, log_p: Tensor, divergence: Tensor, pull: float) -> None:
    """Add the gradient of pull (KL(P || Q) + KL(Q || P)) to `gradient` (n, V), which contains softmax(scores).

    For P's scores it is pull (P (log P - log Q - KL(P || Q)) + P - Q), and for Q's the same with the names changed.
    The halves are computed one after the other and in place, to save memory.
    """
    halves = log_p.chunk(2)
    for log_probs, other, kl, half in zip(halves, halves[::-1], divergence.chunk(2), gradient.chunk(2), strict=True):
        half.mul_((log_probs - other).mul_(pull).add_(1 + pull - pull * kl))
        half.sub_(other.exp(), alpha=pull)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
