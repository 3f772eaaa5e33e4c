"""A block's sublayers in training on NVIDIA GPUs: what block.py does, by fewer kernels, which draw its dropout too.

Vaswani et al. 2017, sections 3.1 and 5.4; E3, E4. Residual, dropout and the norm behind it are one kernel, which
also finds the gradient of the sublayer's last bias on the way. A block draws the seeds of all its dropout at once.

    B batch   m tokens   p model width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard.attention.multihead import MultiHeadAttention
from regard.kernels.training.fused_dropout import draw_seed
from regard.layers.feedforward import FeedForward
from regard.layers.normalization import LayerNorm, RMSNorm

WIDEST = 4096  # p that the kernels take


class Sublayer(NamedTuple):
    """Attention or feed-forward, the norm that belongs to it, and how it is run: with x and what else it is told."""

    norm: nn.Module
    module: nn.Module
    run: Callable[..., Tensor]


def run_drawn(
    sublayers: Sequence[Sublayer],
    x: Tensor,
    *,
    order: str,
    dropout: float,
    past: Tensor | None,
    then: nn.Module | None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Block.forward for x (B, m, p); with `past` also that of the next block.

    Of a post-norm block's input the residual and the sublayer are one tensor. If the kernel is given it twice, the
    second time as `past`, then each gradient comes by itself, and it adds them: see add_norm.

    A pre-norm block ends with a sum and the next one begins with a norm. They are one kernel if this block is told the
    norm, as `then`; what it gives is the next one's `past`.
    """
    seeds = draw_seed(x, 2 * len(sublayers)).split(1) if dropout else [None] * 2 * len(sublayers)
    draws = zip(seeds[::2], seeds[1::2], strict=True)  # for each sublayer, inside and on what it gives
    if order == "post":
        before = x if past is None else past
        for sublayer, (inside, outside) in zip(sublayers, draws, strict=True):
            x, before = _add(x, x, sublayer, sublayer.norm, before, inside, outside, dropout, post=True)
        return x if past is None else (x, before)
    normed = sublayers[0].norm(x) if past is None else past
    norms = [*(sublayer.norm for sublayer in sublayers[1:]), then]
    for sublayer, norm, (inside, outside) in zip(sublayers, norms, draws, strict=True):
        normed, x = _add(x, normed, sublayer, norm, x, inside, outside, dropout, post=False)
    return x if past is None else (x, normed)


def _add(
    x: Tensor,
    given: Tensor,
    sublayer: Sublayer,
    norm: nn.Module | None,
    past: Tensor,
    inside: Tensor | None,
    outside: Tensor | None,
    dropout: float,
    *,
    post: bool,
) -> tuple[Tensor, Tensor]:
    """norm(s) of s = x + dropout(sublayer(given)), and what is `past` of the next sum: s, or the next x itself."""
    from regard.kernels.training.residual_triton import add_dropped, add_norm

    fused = isinstance(norm, LayerNorm | RMSNorm)
    shift = last_bias(sublayer.module) if fused else None
    told: dict[str, Any] = {}
    if isinstance(sublayer.module, MultiHeadAttention | FeedForward):
        told = {"seed": inside, "constant_bias": shift is not None}
    h = sublayer.run(given, **told)
    if x.dtype != h.dtype or not (norm is None or fused):  # the kernels take one dtype, and norms that they know
        h = h if shift is None else h + (shift - shift.detach())  # zero, but for the gradient
        s = x + nn.functional.dropout(h, dropout)
        y = s if norm is None else norm(s)
        return y, y if post else s
    if norm is None:
        s = x + h if outside is None else add_dropped(x, h, outside, dropout)
        return s, s
    bias, centred = (norm.bias, True) if isinstance(norm, LayerNorm) else (None, False)
    return add_norm(x, past, h, shift, norm.weight, bias, outside, dropout, norm.eps, centred, post)


def last_bias(module: nn.Module) -> Tensor | None:
    """What a sublayer adds last, if it can leave the gradient of that to others."""
    if not isinstance(module, MultiHeadAttention | FeedForward):
        return None
    last = module.output if isinstance(module, MultiHeadAttention) else module.down
    return last.bias if type(last) is nn.Linear else None
