"""The block that Transformers are stacked from: attention, feed-forward, each with a residual and a norm.

Vaswani et al. 2017, section 3.1; E3, E4.

    B batch   m tokens   n source tokens   p model width
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from regard.attention.drawn import draw_seed, draws
from regard.attention.random_features.mixed import Attention, Cache, Source
from regard.attention.rules import Mask
from regard.errors import unknown_name
from regard.layers.normalization import LayerNorm, RMSNorm

ORDERS = ("post", "pre")
WIDEST = 4096  # p that the kernel of residual, dropout and norm takes


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
    ) -> Tensor:
        """(B, m, p) -> (B, m, p)."""
        if (memory is None) != (self.cross_attention is None):
            raise ValueError(
                "this block has cross-attention and needs memory="
                if memory is None
                else "this block has no cross-attention, so memory= would be ignored"
            )
        sublayers: list[tuple[nn.Module, Callable[[Tensor], Tensor]]] = [
            (self.self_norm, lambda x: self.self_attention(x, mask=mask, causal=causal, cache=cache))
        ]
        if self.cross_attention is not None and self.cross_norm is not None:
            look = self.cross_attention
            if isinstance(memory, Tensor):
                sublayers.append((self.cross_norm, lambda x: look(x, memory, mask=memory_mask)))
            else:
                sublayers.append((self.cross_norm, lambda x: look(x, mask=memory_mask, cache=memory)))
        sublayers.append((self.feed_norm, self.feed_forward))
        if self.order == "post":
            past = x
            for norm, sublayer in sublayers:
                x, past = self._add(x, sublayer(x), norm, past)
            return x
        normed = self.self_norm(x)
        following = [*(norm for norm, _ in sublayers[1:]), None]
        for (_, sublayer), next_norm in zip(sublayers, following, strict=True):
            normed, x = self._add(x, sublayer(normed), next_norm, x)
        return x

    def _add(self, x: Tensor, h: Tensor, norm: nn.Module | None, past: Tensor) -> tuple[Tensor, Tensor]:
        """norm(s) of s = x + dropout(h), and what is `past` of the next sum: s, the next x itself, or see add_norm."""
        p = self.dropout.p if self.dropout.training else 0.0
        post = self.order == "post"
        if draws("residual", h, p) and x.dtype == h.dtype and x.shape[-1] <= WIDEST:
            from regard.layers.residual_triton import add_dropped, add_norm

            if norm is None:
                s = add_dropped(x, h, draw_seed(h), p)
                return s, s
            if isinstance(norm, LayerNorm | RMSNorm):
                bias, centred = (norm.bias, True) if isinstance(norm, LayerNorm) else (None, False)
                return add_norm(x, past, h, norm.weight, bias, draw_seed(h), p, norm.eps, centred, post)
        s = x + self.dropout(h)
        y = s if norm is None else norm(s)
        return y, y if post else s
