"""Exact heads and random-feature heads side by side in one layer.

F3. A head that must find one word among many needs exact attention; a head that averages over many words does not.
Exact heads with a window attend to the last tokens only, so the cache of the layer still has a fixed size.

    B batch   H heads   m queries   n keys
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.linear.cache import WholeText
from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.masks.algebra import Mask
from regard.attention.multihead import MultiHeadAttention
from regard.errors import deprecated_name


class MixedCache:
    """The caches of both kinds of heads, or what both store of the source of cross-attention."""

    def __init__(self, exact: Any, random: Any) -> None:
        self.exact, self.random = exact, random

    def __len__(self) -> int:
        return len(self.random)

    @property
    def length(self) -> int:
        """The number of tokens that a mask must cover."""
        return self.exact.length

    def positions(self, m: int) -> Tensor:
        """Return the positions of each row's next m tokens, (B, m)."""
        return self.random.positions(m)

    def select(self, rows: Tensor) -> MixedCache:
        """Return a cache of the given rows in the given order (beams, finished sentences)."""
        return MixedCache(self.exact.select(rows), self.random.select(rows))

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        """Become a cache of these rows; where that is faster, only the rows `moved` are copied."""
        self.exact.keep(rows, moved)
        self.random.keep(rows, moved)

    @staticmethod
    def join(caches: Sequence[MixedCache]) -> MixedCache:
        """Return one cache with the rows of all, in this order."""
        exact, random = [cache.exact for cache in caches], [cache.random for cache in caches]
        return MixedCache(exact[0].join(exact), random[0].join(random))


class MixedAttention(nn.Module):
    """Concat(head_1 … head_H) W^O, where the heads `exact_heads` are those of `exact` and the others of `random`.

    Vaswani et al. 2017, section 3.2.2; Peng et al. 2021; F3. Both parts are layers without W^O (output=False) over the
    same input. The input of W^O has the exact heads first; returned weights are in the order of the heads' numbers.
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
            raise ValueError(f"both parts take the same input, got dim={exact.dim} and dim={random.dim}")
        heads = exact.heads + random.sizes.heads
        self.exact_heads = tuple(exact_heads)
        self.random_heads = tuple(head for head in range(heads) if head not in self.exact_heads)
        if len(set(self.exact_heads)) != exact.heads or len(self.random_heads) != random.sizes.heads:
            raise ValueError(
                f"exact_heads must name {exact.heads} of the heads 0 to {heads - 1}, each once: got {self.exact_heads}"
            )
        exact.returns_weights = random.returns_weights = False  # this layer returns the weights of both
        self.dim, self.exact, self.random = exact.dim, exact, random
        order = (*self.exact_heads, *self.random_heads)
        self.places = [order.index(head) for head in range(heads)]  # the index of each head in the concatenation
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
        outputs = [
            part(query, key, value, mask=mask, causal=causal, cache=part_cache, return_weights=return_weights)
            for part, part_cache in (
                (self.exact, None if cache is None else cache.exact),
                (self.random, None if cache is None else cache.random),
            )
        ]
        if not return_weights:
            return self.output(torch.cat(outputs, dim=-1))
        (exact, exact_weights), (random, random_weights) = outputs
        weights = torch.cat([exact_weights, random_weights], dim=1)
        return self.output(torch.cat([exact, random], dim=-1)), weights[:, self.places]

    def project_source(
        self, key: Tensor, value: Tensor | None = None, *, mask: Mask | Tensor | None = None
    ) -> MixedCache:
        """Project and sum up a text (B, n, width) once for all queries of cross-attention."""
        recorded = self._forward_pre_hooks and value is None
        random = WholeText(key) if recorded else self.random.project_source(key, value, mask=mask)
        return MixedCache(self.exact.project_source(key, value), random)

    remember = deprecated_name("remember", project_source)

    def new_cache(self, batch: int, capacity: int, *, static: bool = False) -> MixedCache:
        """Return an empty cache, with one for each part."""
        recorded = bool(self._forward_pre_hooks)
        return MixedCache(
            self.exact.new_cache(batch, capacity, static=static, recorded=recorded),
            self.random.new_cache(batch, capacity, static=static, recorded=recorded),
        )

    def extra_repr(self) -> str:
        return f"exact_heads={self.exact_heads}, random_heads={self.random_heads}"
