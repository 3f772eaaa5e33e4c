"""Exact heads and heads by random features side by side in one layer: sharp looks where needed, sums elsewhere.

F3. A head that must find one word among many needs exact attention; one that gathers a broad view does not. Exact heads
with a window look at the last tokens alone, so the layer still remembers texts of any length in one size.

    B batch   H heads   m queries   n keys
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.linear.cache import WholeText
from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.mask_rules import Mask
from regard.attention.multihead import MultiHeadAttention


class MixedCache:
    """What both kinds of heads keep: of the text so far, or of a text that cross-attention looks at."""

    def __init__(self, exact: Any, random: Any) -> None:
        self.exact, self.random = exact, random

    def __len__(self) -> int:
        return len(self.random)

    @property
    def length(self) -> int:
        """How many tokens a mask must tell about."""
        return self.exact.length

    def positions(self, m: int) -> Tensor:
        """Where each row's next m tokens will stand, (B, m)."""
        return self.random.positions(m)

    def select(self, rows: Tensor) -> MixedCache:
        """A cache of the given rows in the given order (beams, finished sentences)."""
        return MixedCache(self.exact.select(rows), self.random.select(rows))

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        """Become a cache of these rows; only those at the places `moved` are copied where that pays."""
        self.exact.keep(rows, moved)
        self.random.keep(rows, moved)

    @staticmethod
    def join(caches: Sequence[MixedCache]) -> MixedCache:
        """One cache of the rows of all, in this order."""
        exact, random = [cache.exact for cache in caches], [cache.random for cache in caches]
        return MixedCache(exact[0].join(exact), random[0].join(random))


class MixedAttention(nn.Module):
    """Concat(head_1 … head_H) W^O, where the heads `exact_heads` are those of `exact` and the others of `random`.

    Vaswani et al. 2017, section 3.2.2; Peng et al. 2021; F3. Both parts are layers without W^O (output=False) over one
    input. W^O takes the exact heads first; weights that are asked for come in the order of the heads' numbers.
    """

    returns_weights = True  # regard.record asks such modules for their weights

    def __init__(
        self,
        *,
        exact: MultiHeadAttention,
        random: RandomFeatureAttention,
        exact_heads: Sequence[int],
        bias: bool = True,
    ) -> None:
        super().__init__()
        if exact.output is not None or random.output is not None:
            raise ValueError("the heads are joined before W^O: give both parts output=False")
        if exact.dim != random.dim:
            raise ValueError(f"both parts look at one input, got dim={exact.dim} and dim={random.dim}")
        heads = exact.heads + random.sizes.heads
        self.exact_heads = tuple(exact_heads)
        self.random_heads = tuple(head for head in range(heads) if head not in self.exact_heads)
        if len(set(self.exact_heads)) != exact.heads or len(self.random_heads) != random.sizes.heads:
            raise ValueError(
                f"exact_heads must name {exact.heads} of the heads 0 to {heads - 1}, each once: got {self.exact_heads}"
            )
        exact.returns_weights = random.returns_weights = False  # this layer tells those of both
        self.dim, self.exact, self.random = exact.dim, exact, random
        order = (*self.exact_heads, *self.random_heads)
        self.places = [order.index(head) for head in range(heads)]  # where each head stands in the concatenation
        self.output = nn.Linear(exact.heads * exact.d_v + random.sizes.heads * random.sizes.d_v, exact.dim, bias=bias)
        nn.init.xavier_uniform_(self.output.weight)
        if bias:
            nn.init.zeros_(self.output.bias)

    @property
    def traits(self) -> frozenset[str]:
        """Exact and random heads side by side; both parts report their own options, see regard.traits."""
        return frozenset({"mixed-heads"})

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        causal: bool = False,
        cache: MixedCache | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, m, dim) -> (B, m, dim), with `return_weights` also the weights (B, H, m, n); as in both parts."""
        found = [
            part(query, key, value, mask=mask, causal=causal, cache=kept, return_weights=return_weights)
            for part, kept in (
                (self.exact, None if cache is None else cache.exact),
                (self.random, None if cache is None else cache.random),
            )
        ]
        if not return_weights:
            return self.output(torch.cat(found, dim=-1))
        y, weights = (torch.cat(parts, dim=axis) for parts, axis in zip(zip(*found, strict=True), (-1, 1), strict=True))
        return self.output(y), weights[:, self.places]

    def project_source(
        self, key: Tensor, value: Tensor | None = None, *, mask: Mask | Tensor | None = None
    ) -> MixedCache:
        """A text (B, n, width) once for the many queries that will look at it: projected, and summed up."""
        whole = self._forward_pre_hooks and value is None  # somebody records
        random = WholeText(key) if whole else self.random.project_source(key, value, mask=mask)
        return MixedCache(self.exact.project_source(key, value), random)

    def new_cache(self, batch: int, capacity: int, *, static: bool = False) -> MixedCache:
        """An empty cache for this layer, as both parts have them."""
        recorded = bool(self._forward_pre_hooks)
        return MixedCache(
            self.exact.new_cache(batch, capacity, static=static, recorded=recorded),
            self.random.new_cache(batch, capacity, static=static, recorded=recorded),
        )

    def extra_repr(self) -> str:
        return f"exact_heads={self.exact_heads}, random_heads={self.random_heads}"
