"""What a decoder stores for a layer of random features: a state and the lengths of its texts.

F3. It has the interface of KVCache and a fixed size however long the texts are, so there is no capacity to exhaust.
While weights are recorded it stores the single keys as well, because the state contains only their sums.

    B batch   H heads   G key-value heads   m new tokens   n tokens of a text   d, p widths of a head, of the model
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.attention.cache import KVCache, RowCache, StaticCache, join_padded
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.reference import attend_pairs, guarded
from regard.attention.linear.state import FeatureState, empty_state
from regard.attention.masks.algebra import Mask, as_mask
from regard.attention.masks.rules import causal_matrix
from regard.attention.projections import HeadSizes


class FeatureCache:
    """A state and lengths (B,): rows may have texts of different lengths. Steps overwrite both.

    `seen`, while weights are recorded: the keys so far, and in place of values their gates (B, G, n, 1).
    """

    def __init__(
        self, state: FeatureState, lengths: Tensor, seen: KVCache | StaticCache | RowCache | None = None
    ) -> None:
        self.state, self.lengths, self.seen = state, lengths, seen

    def __len__(self) -> int:
        return len(self.state)

    def positions(self, m: int) -> Tensor:
        """Return the positions of each row's next m tokens, (B, m)."""
        if m == 1:
            return self.lengths[:, None]
        return self.lengths[:, None] + torch.arange(m, device=self.lengths.device)

    def advance(self, state: FeatureState, m: int) -> None:
        """Store the state after m more tokens; a copy, because it may be a view into the states of a long text."""
        self.state = state if m == 1 else state.fork()
        self.lengths += m

    def record_keys(self, like: Tensor, width: int, capacity: int, *, static: bool) -> None:
        """From now on store the keys (B, G, n, width) too, up to `capacity`, in the dtype of `like`."""
        B, G = self.state.S.shape[:2]
        keys, gates = (like.new_zeros(B, G, capacity, size) for size in (width, 1))
        self.seen = StaticCache(keys, gates, self.lengths.clone()) if static else KVCache(keys, gates)

    def select(self, rows: Tensor) -> FeatureCache:
        """Return a cache of the given rows in the given order (beams, finished sentences)."""
        seen = None if self.seen is None else self.seen.select(rows)
        return FeatureCache(self.state.select(rows), self.lengths[rows], seen)

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        """Become a cache of these rows; a state is small, so all of it is copied, whichever rows have `moved`."""
        self.state, self.lengths = self.state.select(rows), self.lengths[rows]
        if self.seen is not None:
            self.seen.keep(rows, moved)

    @staticmethod
    def join(caches: Sequence[FeatureCache]) -> FeatureCache:
        """Return one cache with the rows of all, in this order."""
        states = FeatureState.join([cache.state for cache in caches])
        seen = [cache.seen for cache in caches if isinstance(cache.seen, KVCache | RowCache)]
        return FeatureCache(
            states,
            torch.cat([cache.lengths for cache in caches]),
            RowCache.join(seen) if len(seen) == len(caches) else None,
        )


def empty_cache(like: Tensor, batch: int, sizes: HeadSizes, features: RandomFeatures) -> FeatureCache:
    """Return the cache before the first token, on the device of `like`; its sums are in float32, or in float64."""
    if features.per_feature:
        raise ValueError("a cache is for causal attention, and map 'rows' is not: take another map")
    v = like.new_zeros(batch, sizes.kv_heads, 0, sizes.d_v)
    v = v if like.dtype == torch.float64 else v.float()
    state = replace(empty_state(v, features.features), draw=features.draw)
    return FeatureCache(state, torch.zeros(batch, dtype=torch.long, device=like.device))


def seen_weights(
    q: Tensor,  # (B, H, m, d)
    k: Tensor,  # (B, G, m, d)
    gate: Tensor | None,  # (B, G, m)
    seen: KVCache | StaticCache,
    *,
    features: RandomFeatures,
    causal: bool,
) -> Tensor:
    """Add the newest m keys to `seen`; return the weights (B, H, m, n) of their queries over all keys so far."""
    m = q.shape[2]
    keys, gates = seen.append(k, k.new_zeros(*k.shape[:3], 1) if gate is None else gate[..., None])
    mask, causal = seen.restrict(None, causal, m)
    n, all_gates = keys.shape[2], None if gate is None else gates[..., 0]
    grouped = q.unflatten(1, (keys.shape[1], -1))
    _, weights = attend_pairs(grouped, keys, gates, features=features, keep=None, causal=False, gate=all_gates)
    weights = weights.flatten(1, 2)
    if causal:
        weights = weights * causal_matrix(m, n, device=q.device)
    if mask is not None:
        weights = weights * as_mask(mask).matrix(m, n, device=q.device)
    # The reference's denominator of a row and the gates after its query are factors of all its weights, and cancel.
    return (weights / guarded(weights.sum(-1, keepdim=True), torch.finfo(weights.dtype).tiny)).to(q.dtype)


class WholeText:
    """A text (B, n, p) that was not summed up: the source of cross-attention while weights are recorded."""

    def __init__(self, states: Tensor) -> None:
        self.states = states

    @property
    def length(self) -> int:
        """The number of tokens that a mask must cover."""
        return self.states.shape[1]

    def expand(self, rows: int, mask: Mask | Tensor | None) -> tuple[Tensor, Mask | Tensor | None]:
        """Return the text and its mask for so many rows of queries, where adjacent rows (beams) share a text."""
        times = rows // len(self.states)
        if isinstance(mask, Tensor):
            mask = mask.repeat_interleave(times, dim=0)
        return self.states.repeat_interleave(times, dim=0), mask

    def select(self, rows: Tensor) -> WholeText:
        return WholeText(self.states[rows])

    @staticmethod
    def join(texts: Sequence[WholeText]) -> WholeText:
        """Return the texts of all, in this order, padded with zeros, which a mask must hide."""
        return WholeText(join_padded([text.states for text in texts], 1))
