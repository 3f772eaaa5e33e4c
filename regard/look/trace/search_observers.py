"""Observers that record what a trace needs of a search.

E8, E10.

    V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decoding.searches.beam import Beam
from regard.decoding.searches.observer import StepRecord
from regard.look.trace.search_steps import Node, Tree
from regard.text.tokenizers.tokenizer import Tokenizer


class Draw(NamedTuple):
    """How a token was sampled: each has an interval [low, high) of 0 to 1, and a random number falls into one."""

    number: float
    low: Tensor  # (V,)
    high: Tensor  # (V,)


class SampleWatcher:
    """Records the random numbers of one sample and the intervals of the tokens."""

    def __init__(self, vocabulary: int) -> None:
        self.candidates = vocabulary  # all tokens: an interval begins where that of the token before it ends
        self.draws: list[Draw] = []

    def step(self, record: StepRecord) -> None:
        assert record.draws is not None
        assert record.probabilities is not None
        shares = torch.empty_like(record.probabilities[0]).scatter(0, record.tokens[0], record.probabilities[0])
        ends = shares.cumsum(0)
        ends = ends / ends[-1]
        self.draws.append(Draw(record.draws[0].item(), torch.cat([ends.new_zeros(1), ends[:-1]]), ends))


class BeamWatcher:
    """Records the tree of one beam search."""

    candidates = 1  # beam search reports all its candidates, whatever this number is

    def __init__(self, search: Beam, tokenizer: Tokenizer) -> None:
        self.search, self.tokenizer = search, tokenizer
        self.nodes: list[Node] = []
        self.slots: dict[int, int | None] = {0: None}  # the node of the hypothesis in each slot

    def step(self, record: StepRecord) -> None:
        tokens, logps, sums, parents, survivors, ended = (
            getattr(record, name)[0].tolist() for name in ("tokens", "logps", "scores", "parents", "kept", "ended")
        )
        power = (record.step + 1) ** self.search.length_penalty
        texts = self.tokenizer.pieces(tokens)
        node_index: dict[int, int] = {}  # by candidate
        for c, total in enumerate(sums):
            if total == -math.inf:
                continue
            state = "done" if ended[c] else "kept" if c in survivors else "pruned"
            node_index[c] = len(self.nodes)
            node = Node(self.slots[parents[c]], tokens[c], texts[c], logps[c], total, total / power, state)
            self.nodes.append(node)
        self.slots = {slot: node_index[c] for slot, c in enumerate(survivors) if c >= 0}

    def tree(self, tokens: Sequence[int]) -> Tree:
        """Return the tree; `tokens` are those of the best hypothesis."""
        children = {(node.parent, node.token): i for i, node in enumerate(self.nodes)}
        at: int | None = None
        for token in tokens:
            at = children[at, token]
        assert at is not None
        return Tree(self.search.width, self.search.length_penalty, tuple(self.nodes), at)
