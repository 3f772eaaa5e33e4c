"""Keys and values of past tokens, stored so that each new token costs one step.

Five kinds of cache share one interface: `append` new keys and values, the `positions` of new tokens, and the mask that
`restrict` makes of the keys they may see. `MultiHeadAttention.new_cache` allocates the buffers once; k is
(B, H, C, d_k) and v (B, H, C, d_v).

    B batch   H key-value heads   C capacity   m new tokens   n keys seen   d_k, d_v widths
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.masks.algebra import Mask, as_mask


class KVCache:
    """A cache whose rows all have the same length. It returns a view of the keys so far, so work grows with the text.

    A decoder that looks up each token itself sets `origins`: then beams are reordered there, and nothing is copied.
    """

    def __init__(self, k: Tensor, v: Tensor, length: int = 0) -> None:
        self.k, self.v, self.length = k, v, length
        self.origins: Tensor | None = None  # (B, C): the buffer row of each token, if it is not the token's own row

    def __len__(self) -> int:
        return len(self.k if self.origins is None else self.origins)

    @property
    def capacity(self) -> int:
        return self.k.shape[2]

    def positions(self, m: int) -> Tensor:
        """Return the positions of the next m tokens, (m,)."""
        return torch.arange(self.length, self.length + m, device=self.k.device)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new keys (B, H, m, d_k) and values and return all so far, (B, H, n, d_k) and (B, H, n, d_v)."""
        start, end = self.length, self.length + k.shape[2]
        if end > self.capacity:
            raise ValueError(full(self.capacity, self.length, k.shape[2]))
        self.settle()
        self.k[:, :, start:end] = k
        self.v[:, :, start:end] = v
        self.length = end
        return self.k[:, :, :end], self.v[:, :, :end]

    def restrict(self, mask: Mask | Tensor | None, causal: bool, m: int) -> tuple[Mask | Tensor | None, bool]:
        """Return the mask and `causal` for the last m tokens: unchanged, since `append` returns written keys only."""
        return mask, causal

    def select(self, rows: Tensor) -> KVCache:
        """Return a cache of the given rows in the given order (beams, finished sentences); copies written keys only."""
        self.settle()
        k, v = (x.new_empty(len(rows), *x.shape[1:]) for x in (self.k, self.v))
        k[:, :, : self.length], v[:, :, : self.length] = self.k[rows, :, : self.length], self.v[rows, :, : self.length]
        return KVCache(k, v, self.length)

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        """Shrink or reorder to these rows in place; only the rows at the indices `moved` are copied."""
        for x in (self.k, self.v):
            x[moved, :, : self.length] = x[rows[moved], :, : self.length]
        self.k, self.v = self.k[: len(rows)], self.v[: len(rows)]

    @staticmethod
    def join(caches: Sequence[KVCache | RowCache]) -> RowCache:
        """Join the rows of several caches in this order; each row keeps its length."""
        return RowCache.join(caches)

    def settle(self) -> None:
        """Copy the tokens of each row back into that row of the buffers, and drop `origins`."""
        if self.origins is None:
            return
        index = self.origins[:, None, : self.length, None].long()  # (B, 1, n, 1)
        rows = len(index)
        for x in (self.k, self.v):
            x[:rows, :, : self.length] = x.gather(0, index.expand(-1, x.shape[1], -1, x.shape[3]))
        self.k, self.v, self.origins = self.k[:rows], self.v[:rows], None


class StaticCache:
    """A cache with a length for each row and fixed shapes, for compiled steps, CUDA graphs, export and mixed batches.

    `append` returns the whole buffers, and `restrict` hides what is not written yet. No shape depends on the values of
    `lengths` (B,), the tokens of each row, so one compiled step serves all of them.
    """

    def __init__(self, k: Tensor, v: Tensor, lengths: Tensor) -> None:
        self.k, self.v, self.lengths = k, v, lengths

    def __len__(self) -> int:
        return len(self.k)

    @property
    def capacity(self) -> int:
        return self.k.shape[2]

    @property
    def seen(self) -> int:
        """How many keys `append` returns."""
        return self.capacity

    def positions(self, m: int) -> Tensor:
        """Return the positions of each row's next m tokens, (B, m)."""
        return self.lengths[:, None] + torch.arange(m, device=self.k.device)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new keys (B, H, m, d_k) and values behind each row's last token and return the whole buffers."""
        # Reading the lengths would synchronize with another device, and a graph does not have them yet.
        if not torch.compiler.is_compiling() and self.lengths.device.type == "cpu":
            longest = int(self.lengths.max()) if len(self.lengths) else 0
            if longest + k.shape[2] > self.capacity:
                raise ValueError(full(self.capacity, longest, k.shape[2]))
        at = self.positions(k.shape[2])[:, None, :, None]  # (B, 1, m, 1)
        self.k.scatter_(2, at.expand_as(k), k.to(self.k.dtype))
        self.v.scatter_(2, at.expand_as(v), v.to(self.v.dtype))
        self.lengths += k.shape[2]
        return self.k, self.v

    def restrict(self, mask: Mask | Tensor | None, causal: bool, m: int) -> tuple[Mask | Tensor | None, bool]:
        """Return a mask (B, 1, m, n) for the last m tokens of each row: no unwritten and, if causal, no later keys."""
        end = self.lengths[:, None] + torch.arange(1 - m, 1, device=self.k.device) if causal else self.lengths[:, None]
        written = torch.arange(self.seen, device=self.k.device) < end[:, None, :, None]
        if isinstance(mask, Mask):
            # Its rule needs the positions of the queries: at the end of their own text, not of the buffer.
            mask = mask.matrix(m, self.seen, positions=self.positions(m) - m, device=self.k.device)
        return written if mask is None else as_mask(mask) & written, False

    def select(self, rows: Tensor) -> StaticCache:
        return StaticCache(self.k[rows], self.v[rows], self.lengths[rows])

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        """As in KVCache, but copy whole rows, because the lengths are not read."""
        for x in (self.k, self.v, self.lengths):
            x[moved] = x[rows[moved]]
        self.k, self.v, self.lengths = (x[: len(rows)] for x in (self.k, self.v, self.lengths))


class RowCache(StaticCache):
    """A cache with a length for each row that returns only as many keys as the longest row has."""

    def __init__(self, k: Tensor, v: Tensor, lengths: Tensor, longest: int) -> None:
        super().__init__(k, v, lengths)
        self.longest = longest

    @classmethod
    def join(cls, caches: Sequence[KVCache | RowCache]) -> RowCache:
        """Join the rows of several caches in this order."""
        for cache in caches:
            if isinstance(cache, KVCache):
                cache.settle()
        rows, capacity = sum(len(cache.k) for cache in caches), max(cache.capacity for cache in caches)
        k, v = (x.new_zeros(rows, x.shape[1], capacity, x.shape[3]) for x in (caches[0].k, caches[0].v))
        lengths, start, longest = [], 0, 0
        for cache in caches:
            added = slice(start, start := start + len(cache.k))
            n = cache.longest if isinstance(cache, RowCache) else cache.length
            k[added, :, :n], v[added, :, :n] = cache.k[:, :, :n], cache.v[:, :, :n]
            equal_lengths = torch.full((len(cache.k),), n, device=k.device)
            lengths.append(cache.lengths if isinstance(cache, RowCache) else equal_lengths)
            longest = max(longest, n)
        return cls(k, v, torch.cat(lengths), longest)

    @property
    def seen(self) -> int:
        return self.longest

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new keys (B, H, m, d_k) and values behind each row's last token; return all so far."""
        if self.longest + k.shape[2] > self.capacity:
            raise ValueError(full(self.capacity, self.longest, k.shape[2]))
        super().append(k, v)
        self.longest += k.shape[2]
        return self.k[:, :, : self.longest], self.v[:, :, : self.longest]

    def select(self, rows: Tensor) -> RowCache:
        return RowCache(self.k[rows], self.v[rows], self.lengths[rows], self.longest)

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        leave = len(rows) < len(self.k)
        for x in (self.k, self.v):
            x[moved, :, : self.longest] = x[rows[moved], :, : self.longest]
        self.lengths[moved] = self.lengths[rows[moved]]
        self.k, self.v, self.lengths = (x[: len(rows)] for x in (self.k, self.v, self.lengths))
        if leave:
            self.longest = int(self.lengths.max()) if len(rows) else 0


class WindowCache:
    """A cache of the last tokens only, for attention with a window: its size is that of the window.

    k and v (B, H, w - 1, d) are what the next token sees besides itself, the newest last. Rows may have different
    `lengths` (B,); entries before the beginning of a text are hidden.
    """

    def __init__(self, k: Tensor, v: Tensor, lengths: Tensor) -> None:
        self.k, self.v, self.lengths = k, v, lengths

    def __len__(self) -> int:
        return len(self.k)

    def positions(self, m: int) -> Tensor:
        """Return the positions of each row's next m tokens, (B, m)."""
        return self.lengths[:, None] + torch.arange(m, device=self.k.device)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the window followed by the new keys (B, H, m, d_k) and values, (B, H, w - 1 + m, ·)."""
        size, m = self.k.shape[2], k.shape[2]
        k, v = (torch.cat([old, new.to(old.dtype)], dim=2) for old, new in ((self.k, k), (self.v, v)))
        self.k, self.v, self.lengths = k[:, :, m : m + size], v[:, :, m : m + size], self.lengths + m
        return k, v

    def key_positions(self, k: Tensor) -> Tensor:
        """Return the positions of the keys that `append` returned, (B, n); negative before the beginning of a text."""
        return self.lengths[:, None] + torch.arange(-k.shape[2], 0, device=k.device)

    def restrict(self, mask: Mask | Tensor | None, causal: bool, m: int) -> tuple[Mask | Tensor | None, bool]:
        """Return the mask for the last m tokens; it hides entries before the beginning of a text."""
        n = self.k.shape[2] + m
        written = torch.arange(n, device=self.k.device) >= n - self.lengths[:, None, None, None]  # (B, 1, 1, n)
        return written if mask is None else as_mask(mask) & written, causal and m > 1

    def select(self, rows: Tensor) -> WindowCache:
        return WindowCache(self.k[rows], self.v[rows], self.lengths[rows])

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        """Reorder to these rows in place; a window is small, so all of it is copied, whatever `moved` says."""
        self.k, self.v, self.lengths = self.k[rows], self.v[rows], self.lengths[rows]

    @staticmethod
    def join(caches: Sequence[WindowCache]) -> WindowCache:
        """Join the rows of several caches in this order."""
        k, v, lengths = (torch.cat([getattr(cache, name) for cache in caches]) for name in ("k", "v", "lengths"))
        return WindowCache(k, v, lengths)


class ProjectedSource:
    """The keys and values of a source, projected once: what cross-attention attends to in every step."""

    def __init__(self, k: Tensor, v: Tensor) -> None:
        self.k, self.v = k, v

    def positions(self, m: int) -> Tensor:
        raise ValueError("a ProjectedSource is for cross-attention, which has no positions: give position=None")

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the source unchanged: nothing is added to it."""
        return self.k, self.v

    def restrict(self, mask: Mask | Tensor | None, causal: bool, m: int) -> tuple[Mask | Tensor | None, bool]:
        return mask, causal

    def group(self, query: Tensor) -> Tensor:
        """query (rows, m, dim) -> (B, rows / B · m, dim): the rows of a beam attend to one source together."""
        B, rows = self.k.shape[0], query.shape[0]
        return query if rows == B else query.view(B, -1, query.shape[-1])

    def ungroup(self, rows: int, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Undo `group`: y (B, ·, dim) -> (rows, m, dim), and weights (B, H, ·, n) -> (rows, H, m, n)."""
        if y.shape[0] == rows:
            return y, weights
        if weights is not None:
            weights = weights.transpose(1, 2).reshape(rows, -1, *weights.shape[1::2]).transpose(1, 2)
        return y.view(rows, -1, y.shape[-1]), weights

    def select(self, rows: Tensor) -> ProjectedSource:
        return ProjectedSource(self.k[rows], self.v[rows])

    @property
    def length(self) -> int:
        """The number of tokens that a mask covers."""
        return self.k.shape[2]

    @staticmethod
    def join(sources: Sequence[ProjectedSource]) -> ProjectedSource:
        """Join several sources in this order, padded with zeros that a mask must hide."""
        return ProjectedSource(
            join_padded([source.k for source in sources], 2), join_padded([source.v for source in sources], 2)
        )


def make_cache(
    like: Tensor, sizes: tuple[int, int, int, int], capacity: int, *, window: int | None, static: bool
) -> KVCache | StaticCache | WindowCache:
    """Return an empty cache on the device of `like` and in its dtype; `sizes` is (B, H, d_k, d_v)."""
    batch, heads, d_k, d_v = sizes
    n = capacity if window is None else window - 1
    k, v = like.new_zeros(batch, heads, n, d_k), like.new_zeros(batch, heads, n, d_v)
    lengths = torch.zeros(batch, dtype=torch.long, device=like.device)
    if window is not None:
        return WindowCache(k, v, lengths)
    return StaticCache(k, v, lengths) if static else KVCache(k, v)


def join_padded(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate along the batch, each part padded with zeros along `dim` to the longest."""
    n = max(part.shape[dim] for part in parts)
    later_axes = (0, 0) * (parts[0].dim() - 1 - dim)
    return torch.cat([F.pad(part, (*later_axes, 0, n - part.shape[dim])) for part in parts])


def full(capacity: int, length: int, added: int) -> str:
    """Return the message for a cache that cannot take that many more tokens."""
    return f"the cache has room for {capacity} tokens, holds {length} and was given {added} more: allocate a larger one"
