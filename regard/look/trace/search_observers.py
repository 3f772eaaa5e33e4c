"""Observers that keep what a trace needs of a search, and let the rest go at once.

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


class Drawn(NamedTuple):
    """How chance took a token: each has its part [low, high) of the line from 0 to 1, and the draw falls into one."""

    draw: float
    low: Tensor  # (V,)
    high: Tensor  # (V,)


class SampleWatcher:
    """Keeps the draws of one sample, and what was drawn from."""

    def __init__(self, vocabulary: int) -> None:
        self.candidates = vocabulary  # all of them: a part begins where those of the tokens before it end
        self.drawn: list[Drawn] = []

    def step(self, record: StepRecord) -> None:
        assert record.draws is not None
        assert record.probabilities is not None
        shares = torch.empty_like(record.probabilities[0]).scatter(0, record.tokens[0], record.probabilities[0])
        ends = shares.cumsum(0)
        ends = ends / ends[-1]
        self.drawn.append(Drawn(record.draws[0].item(), torch.cat([ends.new_zeros(1), ends[:-1]]), ends))


class BeamWatcher:
    """Keeps the tree of one beam search."""

    candidates = 1  # a beam reports all that it looked at, whatever this says

    def __init__(self, search: Beam, tokenizer: Tokenizer) -> None:
        self.search, self.tokenizer = search, tokenizer
        self.nodes: list[Node] = []
        self.slots: dict[int, int | None] = {0: None}  # the node of the hypothesis that lives in each

    def step(self, record: StepRecord) -> None:
        tokens, logps, sums, parents, kept, ended = (
            getattr(record, name)[0].tolist() for name in ("tokens", "logps", "scores", "parents", "kept", "ended")
        )
        power = (record.step + 1) ** self.search.length_penalty
        texts = self.tokenizer.pieces(tokens)
        places: dict[int, int] = {}  # of the candidates among the nodes
        for c, total in enumerate(sums):
            if total == -math.inf:
                continue
            state = "done" if ended[c] else "kept" if c in kept else "pruned"
            places[c] = len(self.nodes)
            node = Node(self.slots[parents[c]], tokens[c], texts[c], logps[c], total, total / power, state)
            self.nodes.append(node)
        self.slots = {slot: places[c] for slot, c in enumerate(kept) if c >= 0}

    def tree(self, tokens: Sequence[int]) -> Tree:
        """The tree, given the tokens of the hypothesis that was found."""
        children = {(node.parent, node.token): i for i, node in enumerate(self.nodes)}
        at: int | None = None
        for token in tokens:
            at = children[at, token]
        assert at is not None
        return Tree(self.search.width, self.search.length_penalty, tuple(self.nodes), at)
