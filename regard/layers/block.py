"""The block that Transformers are stacked from: attention, feed-forward, each with a residual and a norm.

Vaswani et al. 2017, section 3.1; E3, E4.

    B batch   m tokens   n source tokens   p model width
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol

from torch import Tensor, nn

from regard.attention.masks.algebra import Mask
from regard.attention.multihead import MultiHeadAttention
from regard.attention.types import Attention, Cache, Source
from regard.errors import unknown_name
from regard.layers.ssru import SSRU, SSRUCache

ORDERS = ("post", "pre")
BlockCache = Cache | SSRUCache


class StackBlock(Protocol):
    """What a stack requires of a block. Training needs only the call; a decoder also needs the other methods.

    A cache is what a regard attention layer returns from `new_cache`. Pass it on to that layer: it stores the earlier
    tokens, and it is where the stack reads the positions of the next ones.
    """

    def __call__(
        self,
        x: Tensor,
        *,
        mask: Mask | Tensor | None,
        causal: bool,
        cache: BlockCache | None,
        memory: Tensor | Source | None,
        memory_mask: Mask | Tensor | None,
    ) -> Tensor:
        """(B, m, p) -> (B, m, p). `causal`: no token sees a later one. `memory` is the source, None without one."""

    def new_cache(self, batch: int, capacity: int, *, static: bool = False) -> BlockCache:
        """Return an empty cache for `batch` texts of at most `capacity` tokens."""

    def project_source(self, states: Tensor, mask: Tensor | None) -> Source:
        """Return what `memory` shall be in each step, made once from the source (B, n, p); not for language models."""


class Block(nn.Module):
    """One block of an encoder (E3), or with `cross_attention` one of an encoder-decoder's decoder (E4).

    A recurrent layer can take the place of a decoder's self-attention (ssru.py).

        order "post", as in the paper: x <- Norm(x + Sublayer(x))
        order "pre" (Xiong et al. 2020): x <- x + Sublayer(Norm(x)); a stack of these ends with one more norm

    The residuals carry the positions upward. `norm` makes a new normalization for each sublayer; `dropout` acts on
    the output of each sublayer before it is added (section 5.4).
    """

    def __init__(
        self,
        *,
        self_attention: Attention | SSRU,
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
        cache: BlockCache | None = None,
        memory: Tensor | Source | None = None,  # what cross-attention attends to, (B, n, p) or from `project_source`
        memory_mask: Mask | Tensor | None = None,
    ) -> Tensor:
        """(B, m, p) -> (B, m, p)."""
        self._check_memory(memory)
        x = self._sublayer(x, self.self_norm, partial(self.self_attention, mask=mask, causal=causal, cache=cache))
        if self.cross_attention is not None and self.cross_norm is not None:
            x = self._sublayer(x, self.cross_norm, partial(self._attend_to_memory, memory=memory, mask=memory_mask))
        return self._sublayer(x, self.feed_norm, self.feed_forward)

    def new_cache(self, batch: int, capacity: int, *, static: bool = False) -> BlockCache:
        """Return an empty cache for the tokens of a text, for self-attention."""
        return self.self_attention.new_cache(batch, capacity, static=static)

    def project_source(self, states: Tensor, mask: Tensor | None = None) -> Source:
        """Prepare the source (B, n, p) once for cross-attention; the padding mask is (B, 1, 1, n)."""
        assert self.cross_attention is not None
        if isinstance(self.cross_attention, MultiHeadAttention):
            return self.cross_attention.project_source(states)
        return self.cross_attention.project_source(states, mask=mask)  # random features sum the source up

    def _sublayer(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.order == "post":
            return norm(x + self.dropout(sublayer(x)))
        return x + self.dropout(sublayer(norm(x)))

    def _attend_to_memory(self, x: Tensor, memory: Tensor | Source | None, mask: Mask | Tensor | None) -> Tensor:
        assert self.cross_attention is not None
        if isinstance(memory, Tensor):
            return self.cross_attention(x, memory, mask=mask)
        return self.cross_attention(x, mask=mask, cache=memory)

    def _check_memory(self, memory: Tensor | Source | None) -> None:
        """Raise ValueError unless there is a memory exactly if this block has cross-attention."""
        if (memory is None) != (self.cross_attention is None):
            raise ValueError(
                "this block has cross-attention and needs memory="
                if memory is None
                else "this block has no cross-attention, so memory= would be ignored"
            )
