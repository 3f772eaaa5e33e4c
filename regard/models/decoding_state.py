"""The state that a model passes from one decoding step to the next.

`select` returns some rows of a state, in any order; `join` combines states of one kind.

    B batch   m new tokens   n source tokens   p width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.cache import KVCache, join_padded
from regard.attention.types import Source
from regard.layers.block import BlockCache

Hidden = Tensor | tuple[Tensor, Tensor]  # of an RNN or GRU, or (h, c) of an LSTM; (layers, B, width)


class Encoded(NamedTuple):
    """The source as the decoder sees it."""

    states: Tensor  # (B, n, p), one vector for each source token
    keep: Tensor  # (B, n), False for padding
    final: Hidden | None = None  # a recurrent encoder's last state
    tokens: Tensor | None = None  # (B, n), for a decoder that copies

    def select(self, rows: Tensor) -> Encoded:
        """Return the sentences of the given rows, in the given order."""
        final = None if self.final is None else select_hidden(self.final, rows)
        tokens = None if self.tokens is None else self.tokens[rows]
        return Encoded(self.states[rows], self.keep[rows], final, tokens)


class TransformerState:
    """The caches of all blocks for the text so far, and the projected source if there is one.

    Adjacent rows may share a source, for example those of a beam. The caches then have B·w rows, the source has B.
    """

    def __init__(
        self,
        caches: Sequence[BlockCache],
        memory: Sequence[Source] | None = None,
        memory_mask: Tensor | None = None,  # (B, 1, 1, n)
        sharing: int = 1,  # w: the number of rows that share a source
    ) -> None:
        self.caches: Sequence[Any] = caches  # of any kind of cache
        self.memory: Sequence[Any] | None = memory
        self.memory_mask, self.sharing = memory_mask, sharing

    def positions(self, m: int) -> Tensor:
        """Return the positions of the next m tokens, (m,) or (B, m)."""
        return self.caches[0].positions(m)

    def select(self, rows: Tensor) -> TransformerState:
        """Return the state of the given rows in the given order; its rows no longer share sources."""
        sources = rows if self.sharing == 1 else rows // self.sharing
        return TransformerState(
            [cache.select(rows) for cache in self.caches],
            None if self.memory is None else [memory.select(sources) for memory in self.memory],
            None if self.memory_mask is None else self.memory_mask[sources],
        )

    def repeat(self, times: int) -> TransformerState:
        """Repeat each row, copies adjacent to each other; their source is not repeated."""
        rows = torch.arange(len(self), device=self.positions(1).device).repeat_interleave(times)
        caches = [cache.select(rows) for cache in self.caches]
        return TransformerState(caches, self.memory, self.memory_mask, times * self.sharing)

    def keep(self, rows: Tensor, inputs: Tensor | None) -> TransformerState:
        """Keep only the given rows, in place; only rows that move are copied.

        `inputs` are the groups of `sharing` rows that are kept, in order; None keeps all of them.
        """
        first = self.caches[0]
        if isinstance(first, KVCache) and first.origins is not None:
            origins = first.origins[rows]
            for cache in self.caches:
                cache.origins = origins
        else:
            moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
            for cache in self.caches:
                cache.keep(rows, moved)
        if inputs is not None and self.memory is not None:
            self.memory = [memory.select(inputs) for memory in self.memory]
            self.memory_mask = None if self.memory_mask is None else self.memory_mask[inputs]
        return self

    @staticmethod
    def join(states: Sequence[TransformerState]) -> TransformerState:
        """Join the rows of several states in this order; each row keeps its position."""
        caches = [layer[0].join(layer) for layer in zip(*(state.caches for state in states), strict=True)]
        if states[0].memory is None:
            return TransformerState(caches)
        memory = [layer[0].join(layer) for layer in zip(*(state.memory or () for state in states), strict=True)]
        mask = join_padded([state._mask() for state in states], 3)
        return TransformerState(caches, memory, mask, states[0].sharing)

    def _mask(self) -> Tensor:
        """Return the mask of the source, (B, 1, 1, n), even if there is no padding."""
        assert self.memory is not None
        n = max(memory.length for memory in self.memory)  # 0 if every block stores sums over the source
        all_allowed = torch.ones(len(self) // self.sharing, 1, 1, n, dtype=torch.bool, device=self.positions(1).device)
        return all_allowed if self.memory_mask is None else self.memory_mask

    def __len__(self) -> int:
        return len(self.caches[0])


class RecurrentState:
    """The recurrent state and, for a translator with attention, the source with keys prepared for the score."""

    def __init__(
        self,
        hidden: Hidden,
        keys: Tensor | None = None,  # (B, n, ·)
        values: Tensor | None = None,  # (B, n, p)
        mask: Tensor | None = None,  # (B, 1, n)
        feed: Tensor | None = None,  # (B, 1, hidden): Luong's attentional state, an input of the next step
    ) -> None:
        self.hidden, self.keys, self.values, self.mask, self.feed = hidden, keys, values, mask, feed

    def select(self, rows: Tensor) -> RecurrentState:
        """Return the state of the given rows in the given order (beams, finished sentences)."""
        keys, values, mask, feed = (
            None if part is None else part[rows] for part in (self.keys, self.values, self.mask, self.feed)
        )
        return RecurrentState(select_hidden(self.hidden, rows), keys, values, mask, feed)

    def repeat(self, times: int) -> RecurrentState:
        """Repeat each row, copies adjacent to each other."""
        h = self.hidden if isinstance(self.hidden, Tensor) else self.hidden[0]
        return self.select(torch.arange(h.shape[1], device=h.device).repeat_interleave(times))

    @staticmethod
    def join(states: Sequence[RecurrentState]) -> RecurrentState:
        """Join the rows of several states in this order."""
        hidden: Hidden
        if isinstance(states[0].hidden, Tensor):
            hidden = torch.cat([state.hidden for state in states], dim=1)  # type: ignore[misc]
        else:
            h, c = (torch.cat(parts, dim=1) for parts in zip(*(state.hidden for state in states), strict=True))
            hidden = (h, c)
        parts = {}
        for name, dim in (("keys", 1), ("values", 1), ("mask", 2), ("feed", 1)):
            tensors = [getattr(state, name) for state in states]
            parts[name] = None if tensors[0] is None else join_padded(tensors, dim)
        return RecurrentState(hidden, **parts)

    def keep(self, rows: Tensor, inputs: Tensor | None) -> RecurrentState:
        """Keep only the given rows. If `inputs` is None, all inputs are kept, and each row keeps its source."""
        if inputs is not None:
            return self.select(rows)
        feed = None if self.feed is None else self.feed[rows]
        return RecurrentState(select_hidden(self.hidden, rows), self.keys, self.values, self.mask, feed)


def map_hidden(change: Callable[[Tensor], Tensor], hidden: Hidden) -> Hidden:
    """Apply a function to h, and to c if there is one."""
    return change(hidden) if isinstance(hidden, Tensor) else (change(hidden[0]), change(hidden[1]))


def select_hidden(hidden: Hidden, rows: Tensor) -> Hidden:
    """Return the given rows of a hidden state."""
    return map_hidden(lambda part: part[:, rows], hidden)
