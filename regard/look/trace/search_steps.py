"""The decoding steps of a trace: the candidates of each token, and the tree of a beam search.

E8, E10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from regard.errors import DataError, unknown_name

STATES = ("kept", "pruned", "done")


@dataclass(frozen=True)
class Candidate:
    """A candidate for the next token."""

    token: int
    text: str
    logp: float  # the model's log-probability
    low: float | None = None  # start of its interval of 0 to 1, if the token was sampled
    high: float | None = None  # end of that interval


@dataclass(frozen=True)
class Step:
    """The probabilities of the next token: the most probable candidates, the chosen one, and the rest."""

    chosen: int
    candidates: tuple[Candidate, ...]
    rest: float  # the probability of all other tokens together
    entropy: float  # in nats, of the whole distribution
    given: bool = False  # not chosen by the search, but part of a prompt, a prefix or a target
    draw: float | None = None  # the random number of a sample, from 0 up to 1

    def __post_init__(self) -> None:
        total = math.fsum([math.exp(min(candidate.logp, 1.0)) for candidate in self.candidates]) + self.rest
        if abs(total - 1) > 1e-5 or self.rest < -1e-9:
            raise DataError(f"the probabilities of the candidates and the rest sum to {total:.6f}")
        if self.entropy < -1e-9:
            raise DataError(f"entropy is {self.entropy}, below 0")
        taken = [candidate for candidate in self.candidates if candidate.token == self.chosen]
        if len(taken) != 1:
            raise DataError(f"the chosen token {self.chosen} must be among the candidates exactly once")
        if self.draw is not None:
            low, high = taken[0].low, taken[0].high
            if low is None or high is None or not low - 1e-6 <= self.draw <= high + 1e-6:
                raise DataError(f"the draw {self.draw} is not in the interval of the chosen token, {low} to {high}")


@dataclass(frozen=True)
class Node:
    """A hypothesis of a beam search: one more token after its parent."""

    parent: int | None  # index of the parent node; None for a first token
    token: int
    text: str
    logp: float  # the model's log-probability of the token
    sum: float  # log-probability of the whole hypothesis, after the rules of the search
    score: float  # the sum divided by the length to the power of the length penalty
    state: str  # kept: continued in the next step; done: ended; pruned: dropped from the beam

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise DataError(unknown_name("state", self.state, STATES))


@dataclass(frozen=True)
class Tree:
    """All hypotheses of a beam search, step by step and best first, and the one that it returned."""

    width: int
    length_penalty: float
    nodes: tuple[Node, ...]
    best: int

    def __post_init__(self) -> None:
        if self.length_penalty < 0:
            raise DataError(f"length_penalty must be at least 0, got {self.length_penalty}")
        lengths: list[int] = []
        for i, node in enumerate(self.nodes):
            if node.parent is not None and not 0 <= node.parent < i:
                raise DataError(f"the parent of node {i} is {node.parent}, which does not come before it")
            if node.parent is not None and self.nodes[node.parent].state != "kept":
                raise DataError(f"node {i} continues node {node.parent}, which was {self.nodes[node.parent].state}")
            lengths.append(1 if node.parent is None else lengths[node.parent] + 1)
            score = node.sum * lengths[i] ** -self.length_penalty
            if abs(score - node.score) > 1e-5 * max(1.0, abs(score)):
                raise DataError(f"node {i} has the score {node.score}, but sum and length give {score}")
        if not 0 <= self.best < len(self.nodes) or self.nodes[self.best].state == "pruned":
            raise DataError(f"best is {self.best}, which is not a kept or finished node")

    def path(self, node: int) -> list[int]:
        """Return the nodes of a hypothesis, from its first token to this one."""
        path: list[int] = []
        current: int | None = node
        while current is not None:
            path.append(current)
            current = self.nodes[current].parent
        return path[::-1]
