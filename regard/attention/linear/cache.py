"""What a decoder keeps for a layer of random features: a state and how long its texts are, with KVCache's interface.

F3. It has one size however long the texts are, so there is no capacity that could be used up. Only while somebody
records weights, the single keys are kept as well: sums know nothing of them.

    B batch   H heads   G heads of keys   m new tokens   n tokens of a text   d, p widths of a head, of the model
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attention.cache import KVCache, RowCache, StaticCache, join_padded
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.reference import attend_pairs, guarded
from regard.attention.linear.state import FeatureState
from regard.attention.mask_rules import as_mask, causal_matrix


class FeatureCache:
    """A state and lengths (B,): rows may be texts of different ages. Both are the cache's own, and written over.

    `seen`, while somebody records: the keys so far, and in place of values their gates (B, G, n, 1).
    """

    def __init__(
        self, state: FeatureState, lengths: Tensor, seen: KVCache | StaticCache | RowCache | None = None
    ) -> None:
        self.state, self.lengths, self.seen = state, lengths, seen

    def __len__(self) -> int:
        return len(self.state)

    def positions(self, m: int) -> Tensor:
        """Where each row's next m tokens will stand, (B, m)."""
        if m == 1:
            return self.lengths[:, None]
        return self.lengths[:, None] + torch.arange(m, device=self.lengths.device)

    def advance(self, state: FeatureState, m: int) -> None:
        """Hold the state after m more tokens; a copy, for it may be a part of many that a long text went through."""
        self.state = state if m == 1 else state.fork()
        self.lengths += m

    def select(self, rows: Tensor) -> FeatureCache:
        """A cache of the given rows in the given order (beams, finished sentences)."""
        seen = None if self.seen is None else self.seen.select(rows)
        return FeatureCache(self.state.select(rows), self.lengths[rows], seen)

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        """Become a cache of these rows; a state is small, so it is copied whole, whatever has `moved`."""
        self.state, self.lengths = self.state.select(rows), self.lengths[rows]
        if self.seen is not None:
            self.seen.keep(rows, moved)

    @staticmethod
    def join(caches: Sequence[FeatureCache]) -> FeatureCache:
        """One cache of the rows of all, in this order."""
        states = FeatureState.join([cache.state for cache in caches])
        seen = [cache.seen for cache in caches if isinstance(cache.seen, KVCache | RowCache)]
        return FeatureCache(
            states,
            torch.cat([cache.lengths for cache in caches]),
            RowCache.join(seen) if len(seen) == len(caches) else None,
        )


def seen_weights(
    q: Tensor,  # (B, H, m, d)
    k: Tensor,  # (B, G, m, d)
    gate: Tensor | None,  # (B, G, m)
    seen: KVCache | StaticCache,
    *,
    features: RandomFeatures,
    causal: bool,
) -> Tensor:
    """The weights (B, H, m, n) of the newest m tokens over all keys so far, by the reference; the keys join `seen`."""
    m = q.shape[2]
    keys, gates = seen.append(k, k.new_zeros(*k.shape[:3], 1) if gate is None else gate[..., None])
    mask, causal = seen.restrict(None, causal, m)
    n, past = keys.shape[2], None if gate is None else gates[..., 0]
    grouped = q.unflatten(1, (keys.shape[1], -1))
    _, weights = attend_pairs(grouped, keys, gates, features=features, keep=None, causal=False, gate=past)
    weights = weights.flatten(1, 2)
    if causal:
        weights = weights * causal_matrix(m, n, device=q.device)
    if mask is not None:
        weights = weights * as_mask(mask).matrix(m, n, device=q.device)
    # What the reference divided a row by, and gates behind its query, are in all its weights and cancel.
    return (weights / guarded(weights.sum(-1, keepdim=True), torch.finfo(weights.dtype).tiny)).to(q.dtype)


class WholeText:
    """A text (B, n, p) as it is, for cross-attention while somebody records: in place of its sum."""

    def __init__(self, states: Tensor) -> None:
        self.states = states

    @property
    def length(self) -> int:
        """How many tokens a mask must tell about."""
        return self.states.shape[1]

    def select(self, rows: Tensor) -> WholeText:
        return WholeText(self.states[rows])

    @staticmethod
    def join(texts: Sequence[WholeText]) -> WholeText:
        """The texts of all, in this order, with zeros up to the longest, which a mask must hide."""
        return WholeText(join_padded([text.states for text in texts], 1))
