"""The block that Transformers are stacked from: attention, feed-forward, each with a residual and a norm.

Vaswani et al. 2017, section 3.1; E3, E4.

    B batch   m tokens   n source tokens   p model width
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from torch import Tensor, nn

from regard.attention.drawn import draw_seed, draws
from regard.attention.multihead import MultiHeadAttention
from regard.attention.random_features.mixed import Attention, Cache, Source
from regard.attention.rules import Mask
from regard.errors import unknown_name
from regard.layers.feedforward import FeedForward
from regard.layers.normalization import LayerNorm, RMSNorm

ORDERS = ("post", "pre")
WIDEST = 4096  # p that the kernel of residual, dropout and norm takes


Seeds = tuple[Tensor, Tensor]  # of the dropout inside a sublayer, and of that on what it gives


class Sublayer(NamedTuple):
    """Attention or feed-forward, its norm, and how it is run: with x and what else it is told."""

    norm: nn.Module
    module: nn.Module
    run: Callable[[Tensor, dict[str, bool | Tensor]], Tensor]


class Block(nn.Module):
    """One block of an encoder (E3), or with `cross_attention` one of an encoder-decoder's decoder (E4).

        order "post", as in the paper: x <- Norm(x + Sublayer(x))
        order "pre" (Xiong et al. 2020): x <- x + Sublayer(Norm(x)); a stack of these ends with one more norm

    The residuals carry the positions upward. `norm` makes a fresh normalisation for each sublayer; `dropout` acts on
    each sublayer's output before it is added (section 5.4).
    """

    def __init__(
        self,
        *,
        self_attention: Attention,
        feed_forward: nn.Module,
        norm: Callable[[], nn.Module],
        cross_attention: Attention | None = None,
        order: Literal["post", "pre"] = "post",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if order not in ORDERS:
            raise ValueError(unknown_name("order", order, ORDERS))
        self.order = order
        self.self_attention = self_attention
        self.self_norm = norm()
        self.cross_attention = cross_attention
        self.cross_norm = None if cross_attention is None else norm()
        self.feed_forward = feed_forward
        self.feed_norm = norm()
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,  # (B, m, p)
        *,
        mask: Mask | Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        memory: Tensor | Source | None = None,  # what cross-attention looks at, (B, n, p) or prepared by `remember`
        memory_mask: Mask | Tensor | None = None,
        past: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, m, p) -> (B, m, p).

        Post-norm blocks may hand on what is `past` of x, see add_norm: the first one is given x once more, and each one
        then returns the `past` of the next beside its result.
        """
        if (memory is None) != (self.cross_attention is None):
            raise ValueError(
                "this block has cross-attention and needs memory="
                if memory is None
                else "this block has no cross-attention, so memory= would be ignored"
            )
        own = self.self_attention
        sublayers: list[Sublayer] = [
            Sublayer(self.self_norm, own, lambda x, how: own(x, mask=mask, causal=causal, cache=cache, **how))
        ]
        if self.cross_attention is not None and self.cross_norm is not None:
            look = self.cross_attention
            if isinstance(memory, Tensor):
                run = lambda x, how: look(x, memory, mask=memory_mask, **how)  # noqa: E731
            else:
                run = lambda x, how: look(x, mask=memory_mask, cache=memory, **how)  # noqa: E731
            sublayers.append(Sublayer(self.cross_norm, look, run))
        feed = self.feed_forward
        sublayers.append(Sublayer(self.feed_norm, feed, lambda x, how: feed(x, **how)))
        seeds: Iterable[Seeds | None] = [None] * len(sublayers)
        if draws("residual", x, self._share) and x.shape[-1] <= WIDEST:
            drawn = draw_seed(x, 2 * len(sublayers)).split(1)
            seeds = zip(drawn[::2], drawn[1::2], strict=True)
        if self.order == "post":
            before = x if past is None else past
            for sublayer, two in zip(sublayers, seeds, strict=True):
                x, before = self._add(x, x, sublayer, sublayer.norm, before, two)
            return x if past is None else (x, before)
        normed = self.self_norm(x)
        following = [*(sublayer.norm for sublayer in sublayers[1:]), None]
        for sublayer, next_norm, two in zip(sublayers, following, seeds, strict=True):
            normed, x = self._add(x, normed, sublayer, next_norm, x, two)
        return x

    def hands_on(self, x: Tensor) -> bool:
        """Whether it pays to give `past`: where the kernel of residual, dropout and norm is used."""
        return self.order == "post" and draws("residual", x, self._share) and x.shape[-1] <= WIDEST

    @property
    def _share(self) -> float:
        return self.dropout.p if self.dropout.training else 0.0

    def _add(
        self,
        x: Tensor,
        given: Tensor,
        sublayer: Sublayer,
        norm: nn.Module | None,
        past: Tensor,
        seeds: Seeds | None,
    ) -> tuple[Tensor, Tensor]:
        """norm(s) of s = x + dropout(sublayer(given)), and what is `past` of the next sum.

        That is s, the next x itself, or see add_norm. With seeds, of the sublayer's dropout and of this one, a kernel.
        """
        p, post = self._share, self.order == "post"
        shift = None  # the sublayer's last bias, if the kernel adds it
        how: dict[str, bool | Tensor] = {}
        if seeds is not None and isinstance(sublayer.module, MultiHeadAttention | FeedForward):
            how["seed"] = seeds[0]
            if isinstance(norm, LayerNorm | RMSNorm):
                shift = last_bias(sublayer.module)
                how["output_bias"] = shift is None
        h = sublayer.run(given, how)
        if seeds is not None and x.dtype == h.dtype:
            from regard.layers.residual_triton import add_dropped, add_norm

            if norm is None:
                s = add_dropped(x, h, seeds[1], p)
                return s, s
            if isinstance(norm, LayerNorm | RMSNorm):
                bias, centred = (norm.bias, True) if isinstance(norm, LayerNorm) else (None, False)
                return add_norm(x, past, h, shift, norm.weight, bias, seeds[1], p, norm.eps, centred, post)
        s = x + self.dropout(h if shift is None else h + shift)
        y = s if norm is None else norm(s)
        return y, y if post else s


def last_bias(module: MultiHeadAttention | FeedForward) -> Tensor | None:
    """What a sublayer adds last, if it can leave that to others."""
    last = module.output if isinstance(module, MultiHeadAttention) else module.down
    return last.bias if type(last) is nn.Linear else None
