"""What a model hands from one decoding step to the next.

A state knows how to take some of its rows along, in any order: `select`.

    B batch   m new tokens   n source tokens   p width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from regard.attention.cache import KVCache, Memory, StaticCache

Hidden = Tensor | tuple[Tensor, Tensor]  # of an RNN or GRU, or (h, c) of an LSTM; (layers, B, width)


class Encoded(NamedTuple):
    """The source as the decoder sees it."""

    states: Tensor  # (B, n, p), one vector for each source token
    keep: Tensor  # (B, n), False for padding
    final: Hidden | None = None  # a recurrent encoder's last state

    def select(self, rows: Tensor) -> Encoded:
        """The sentences of the given rows, in the given order."""
        return Encoded(
            self.states[rows], self.keep[rows], None if self.final is None else select_hidden(self.final, rows)
        )


class TransformerState:
    """Keys and values so far, one cache for each block, and the projected source where there is one."""

    def __init__(
        self,
        caches: Sequence[KVCache | StaticCache],
        memory: Sequence[Memory] | None = None,
        memory_mask: Tensor | None = None,  # (B, 1, 1, n)
    ) -> None:
        self.caches, self.memory, self.memory_mask = caches, memory, memory_mask

    def positions(self, m: int) -> Tensor:
        """Where the next m tokens stand, (m,) or (B, m)."""
        return self.caches[0].positions(m)

    def select(self, rows: Tensor) -> TransformerState:
        """The state of the given rows in the given order (beams, finished sentences)."""
        return TransformerState(
            [cache.select(rows) for cache in self.caches],
            None if self.memory is None else [memory.select(rows) for memory in self.memory],
            None if self.memory_mask is None else self.memory_mask[rows],
        )


class RecurrentState:
    """The recurrent state, and for a translator with attention the source, its keys prepared for the score."""

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
        """The state of the given rows in the given order (beams, finished sentences)."""
        keys, values, mask, feed = (
            None if part is None else part[rows] for part in (self.keys, self.values, self.mask, self.feed)
        )
        return RecurrentState(select_hidden(self.hidden, rows), keys, values, mask, feed)


def map_hidden(change: Callable[[Tensor], Tensor], hidden: Hidden) -> Hidden:
    """The same change to h, and to c where there is one."""
    return change(hidden) if isinstance(hidden, Tensor) else (change(hidden[0]), change(hidden[1]))


def select_hidden(hidden: Hidden, rows: Tensor) -> Hidden:
    return map_hidden(lambda part: part[:, rows], hidden)
