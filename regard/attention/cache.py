"""Keys and values of past tokens, kept so that each new token costs one step.

Five kinds with one interface: what the cache adds to the new keys and values, where new tokens stand, and
which keys they may see. Buffers are allocated once, by `MultiHeadAttention.new_cache`; k is (B, H, C, d_k) and v
(B, H, C, d_v).

    B batch   H key-value heads   C capacity   m new tokens   n keys seen   d_k, d_v widths
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.mask_rules import Mask, as_mask


class KVCache:
    """All rows at the same place: the keys so far come back as a view, so work grows with the text alone.

    A reader that can find each token by itself sets `origins`: then rows change places there, and nothing is copied.
    """

    def __init__(self, k: Tensor, v: Tensor, length: int = 0) -> None:
        self.k, self.v, self.length = k, v, length
        self.origins: Tensor | None = None  # (B, C): in which row of the buffers each token lies, if not in its own

    def __len__(self) -> int:
        return len(self.k if self.origins is None else self.origins)

    @property
    def capacity(self) -> int:
        return self.k.shape[2]

    def positions(self, m: int) -> Tensor:
        """Where the next m tokens will stand, (m,)."""
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
        """The mask and `causal` for the last m tokens: as they are, since only written keys come back."""
        return mask, causal

    def select(self, rows: Tensor) -> KVCache:
        """A cache of the given rows in the given order (beams, finished sentences); only what is written is copied."""
        self.settle()
        k, v = (x.new_empty(len(rows), *x.shape[1:]) for x in (self.k, self.v))
        k[:, :, : self.length], v[:, :, : self.length] = self.k[rows, :, : self.length], self.v[rows, :, : self.length]
        return KVCache(k, v, self.length)

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        """Become a cache of these rows, at most as many as there are; only those at the places `moved` are copied."""
        for x in (self.k, self.v):
            x[moved, :, : self.length] = x[rows[moved], :, : self.length]
        self.k, self.v = self.k[: len(rows)], self.v[: len(rows)]

    @staticmethod
    def join(caches: Sequence[KVCache | RowCache]) -> RowCache:
        """One cache of the rows of all, in this order, each at its own place."""
        return RowCache.join(caches)

    def settle(self) -> None:
        """Bring the tokens of each row into that row of the buffers again."""
        if self.origins is None:
            return
        index = self.origins[:, None, : self.length, None].long()  # (B, 1, n, 1)
        rows = len(index)
        for x in (self.k, self.v):
            x[:rows, :, : self.length] = x.gather(0, index.expand(-1, x.shape[1], -1, x.shape[3]))
        self.k, self.v, self.origins = self.k[:rows], self.v[:rows], None


class StaticCache:
    """Each row at its own place and every shape fixed, for compiled steps, CUDA graphs, export and mixed batches.

    The whole buffer comes back, and `restrict` hides what is not written yet. Nothing here depends on the numbers
    in `lengths` (B,), the tokens of each row, so one compiled step serves all of them.
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
        """How many keys come back."""
        return self.capacity

    def positions(self, m: int) -> Tensor:
        """Where each row's next m tokens will stand, (B, m)."""
        return self.lengths[:, None] + torch.arange(m, device=self.k.device)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new keys (B, H, m, d_k) and values at each row's place and return the whole buffers."""
        # On another device the look would wait for it, and in a graph the numbers are not there yet.
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
        """The mask (B, 1, m, n) for the last m tokens of each row: keys not written yet, and later ones if causal."""
        end = self.lengths[:, None] + torch.arange(1 - m, 1, device=self.k.device) if causal else self.lengths[:, None]
        written = torch.arange(self.seen, device=self.k.device) < end[:, None, :, None]
        if isinstance(mask, Mask):
            # Its rule asks where the queries stand: at the end of their own text, not of the buffer.
            mask = mask.matrix(m, self.seen, positions=self.positions(m) - m, device=self.k.device)
        return written if mask is None else as_mask(mask) & written, False

    def select(self, rows: Tensor) -> StaticCache:
        return StaticCache(self.k[rows], self.v[rows], self.lengths[rows])

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        """As in KVCache; each row is copied whole, for its length is not looked at."""
        for x in (self.k, self.v, self.lengths):
            x[moved] = x[rows[moved]]
        self.k, self.v, self.lengths = (x[: len(rows)] for x in (self.k, self.v, self.lengths))


class RowCache(StaticCache):
    """Each row at its own place, and only as many keys come back as the longest row has: texts of different ages."""

    def __init__(self, k: Tensor, v: Tensor, lengths: Tensor, longest: int) -> None:
        super().__init__(k, v, lengths)
        self.longest = longest

    @classmethod
    def join(cls, caches: Sequence[KVCache | RowCache]) -> RowCache:
        """One cache of the rows of all, in this order."""
        for cache in caches:
            if isinstance(cache, KVCache):
                cache.settle()
        rows, capacity = sum(len(cache.k) for cache in caches), max(cache.capacity for cache in caches)
        k, v = (x.new_zeros(rows, x.shape[1], capacity, x.shape[3]) for x in (caches[0].k, caches[0].v))
        lengths, start, longest = [], 0, 0
        for cache in caches:
            own = slice(start, start := start + len(cache.k))
            n = cache.longest if isinstance(cache, RowCache) else cache.length
            k[own, :, :n], v[own, :, :n] = cache.k[:, :, :n], cache.v[:, :, :n]
            alike = torch.full((len(cache.k),), n, device=k.device)
            lengths.append(cache.lengths if isinstance(cache, RowCache) else alike)
            longest = max(longest, n)
        return cls(k, v, torch.cat(lengths), longest)

    @property
    def seen(self) -> int:
        return self.longest

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new keys (B, H, m, d_k) and values at each row's place and return all so far, (B, H, n, d_k)."""
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
    """The last tokens alone, for heads that look no farther back: its size is that of the window.

    k and v (B, H, w - 1, d) are what the next token sees beside itself, the newest last. Rows may be texts of different
    ages, lengths (B,): places before the beginning of a text are hidden.
    """

    def __init__(self, k: Tensor, v: Tensor, lengths: Tensor) -> None:
        self.k, self.v, self.lengths = k, v, lengths

    def __len__(self) -> int:
        return len(self.k)

    def positions(self, m: int) -> Tensor:
        """Where each row's next m tokens will stand, (B, m)."""
        return self.lengths[:, None] + torch.arange(m, device=self.k.device)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The window before the new keys (B, H, m, d_k) and values, and these, (B, H, w - 1 + m, ·)."""
        room, m = self.k.shape[2], k.shape[2]
        k, v = (torch.cat([old, new.to(old.dtype)], dim=2) for old, new in ((self.k, k), (self.v, v)))
        self.k, self.v, self.lengths = k[:, :, m : m + room], v[:, :, m : m + room], self.lengths + m
        return k, v

    def places(self, k: Tensor) -> Tensor:
        """Where the keys that `append` gave stand in their texts, (B, n); below 0: before the beginning."""
        return self.lengths[:, None] + torch.arange(-k.shape[2], 0, device=k.device)

    def restrict(self, mask: Mask | Tensor | None, causal: bool, m: int) -> tuple[Mask | Tensor | None, bool]:
        """The mask for the last m tokens, without what stands before the beginning of a text."""
        n = self.k.shape[2] + m
        written = torch.arange(n, device=self.k.device) >= n - self.lengths[:, None, None, None]  # (B, 1, 1, n)
        return written if mask is None else as_mask(mask) & written, causal and m > 1

    def select(self, rows: Tensor) -> WindowCache:
        return WindowCache(self.k[rows], self.v[rows], self.lengths[rows])

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        """Become a cache of these rows; a window is small, so it is copied whole, whatever has `moved`."""
        self.k, self.v, self.lengths = self.k[rows], self.v[rows], self.lengths[rows]

    @staticmethod
    def join(caches: Sequence[WindowCache]) -> WindowCache:
        """One cache of the rows of all, in this order."""
        k, v, lengths = (torch.cat([getattr(cache, name) for cache in caches]) for name in ("k", "v", "lengths"))
        return WindowCache(k, v, lengths)


class ProjectedSource:
    """Keys and values of a finished text, projected once: what cross-attention looks at in every step."""

    def __init__(self, k: Tensor, v: Tensor) -> None:
        self.k, self.v = k, v

    def positions(self, m: int) -> Tensor:
        raise ValueError("a ProjectedSource is for cross-attention, which has no positions: give position=None")

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The memory as it is: nothing is added to a finished text."""
        return self.k, self.v

    def restrict(self, mask: Mask | Tensor | None, causal: bool, m: int) -> tuple[Mask | Tensor | None, bool]:
        return mask, causal

    def select(self, rows: Tensor) -> ProjectedSource:
        return ProjectedSource(self.k[rows], self.v[rows])

    @property
    def length(self) -> int:
        """How many tokens a mask must tell about."""
        return self.k.shape[2]

    @staticmethod
    def join(memories: Sequence[ProjectedSource]) -> ProjectedSource:
        """The texts of all, in this order, with zeros up to the longest, which a mask must hide."""
        return ProjectedSource(
            join_padded([memory.k for memory in memories], 2), join_padded([memory.v for memory in memories], 2)
        )


def join_padded(parts: Sequence[Tensor], dim: int) -> Tensor:
    """One under the other, along `dim` with zeros up to the longest."""
    n = max(part.shape[dim] for part in parts)
    behind = (0, 0) * (parts[0].dim() - 1 - dim)
    return torch.cat([F.pad(part, (*behind, 0, n - part.shape[dim])) for part in parts])


def full(capacity: int, length: int, more: int) -> str:
    return f"the cache has room for {capacity} tokens, holds {length} and was given {more} more: allocate a larger one"
