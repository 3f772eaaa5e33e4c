"""What a decoder keeps for a layer of random features: a state and how long its texts are, with KVCache's interface.

F3. It has one size however long the texts are, so there is no capacity that could be used up.

    B batch   m new tokens
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attention.random_features.state import FeatureState


class FeatureCache:
    """A state that a layer replaces by the next one, and lengths (B,): rows may be texts of different ages."""

    def __init__(self, state: FeatureState, lengths: Tensor) -> None:
        self.state, self.lengths = state, lengths

    def __len__(self) -> int:
        return len(self.state)

    def positions(self, m: int) -> Tensor:
        """Where each row's next m tokens will stand, (B, m)."""
        return self.lengths[:, None] + torch.arange(m, device=self.lengths.device)

    def advance(self, state: FeatureState, m: int) -> None:
        """Hold the state after m more tokens."""
        self.state, self.lengths = state, self.lengths + m

    def select(self, rows: Tensor) -> FeatureCache:
        """A cache of the given rows in the given order (beams, finished sentences)."""
        return FeatureCache(self.state.select(rows), self.lengths[rows])

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        """Become a cache of these rows; a state is small, so it is copied whole, whatever has `moved`."""
        self.state, self.lengths = self.state.select(rows), self.lengths[rows]

    @staticmethod
    def join(caches: Sequence[FeatureCache]) -> FeatureCache:
        """One cache of the rows of all, in this order."""
        states = FeatureState.join([cache.state for cache in caches])
        return FeatureCache(states, torch.cat([cache.lengths for cache in caches]))
