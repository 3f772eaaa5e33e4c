"""The block that Transformers are stacked from: attention, feed-forward, each with a residual and a norm.

Vaswani et al. 2017, section 3.1; E3, E4.

    B batch   m tokens   n source tokens   p model width
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from regard.attention.mask_rules import Mask
from regard.attention.types import Attention, Cache, Source
from regard.errors import unknown_name
from regard.kernels.training.fused_block import WIDEST, Sublayer, run_drawn
from regard.kernels.training.fused_dropout import draws

ORDERS = ("post", "pre")


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

    @property
    def traits(self) -> frozenset[str]:
        """What this block computes around its sublayers; see regard.traits."""
        cross = {"cross-attention"} if self.cross_attention is not None else set()
        return frozenset({"block", f"{self.order}-norm", *cross})

    def forward(
        self,
        x: Tensor,  # (B, m, p)
        *,
        mask: Mask | Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        memory: Tensor | Source | None = None,  # what cross-attention looks at, (B, n, p) or from `project_source`
        memory_mask: Mask | Tensor | None = None,
        past: Tensor | None = None,
        then: nn.Module | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, m, p) -> (B, m, p).

        Where kernels add what the sublayers give, blocks may hand on `past`, and pre-norm ones do the norm `then` that
        comes after them: see run_drawn.
        """
        if (memory is None) != (self.cross_attention is None):
            raise ValueError(
                "this block has cross-attention and needs memory="
                if memory is None
                else "this block has no cross-attention, so memory= would be ignored"
            )
        attend = partial(self.self_attention, mask=mask, causal=causal, cache=cache)
        sublayers = [Sublayer(self.self_norm, self.self_attention, attend)]
        if self.cross_attention is not None and self.cross_norm is not None:
            across = self.cross_attention

            def look(x: Tensor, **told: Any) -> Tensor:
                if isinstance(memory, Tensor):
                    return across(x, memory, mask=memory_mask, **told)
                return across(x, mask=memory_mask, cache=memory, **told)

            sublayers.append(Sublayer(self.cross_norm, across, look))
        sublayers.append(Sublayer(self.feed_norm, self.feed_forward, self.feed_forward))
        if self.draws(x):
            return run_drawn(sublayers, x, order=self.order, dropout=self.dropout.p, past=past, then=then)
        for norm, _, sublayer in sublayers:
            if self.order == "post":
                x = norm(x + self.dropout(sublayer(x)))
            else:
                x = x + self.dropout(sublayer(norm(x)))
        return x

    def draws(self, x: Tensor) -> bool:
        """Whether kernels add what the sublayers give, and draw the dropout that acts on it."""
        return self.dropout.training and draws("residual", x, self.dropout.p) and x.shape[-1] <= WIDEST
