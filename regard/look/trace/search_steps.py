"""How a text was decoded, as parts of a trace: what each token was chosen from, and the tree of a beam search.

E8, E10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from regard.errors import DataError, unknown_name

STATES = ("kept", "pruned", "done")


@dataclass(frozen=True)
class Candidate:
    """A token that might come next."""

    token: int
    text: str
    logp: float  # the model's log-probability
    low: float | None = None  # where its part of the line from 0 to 1 begins that a sample was drawn on,
    high: float | None = None  # and where it ends


@dataclass(frozen=True)
class Step:
    """What the model thought of the next token: the likeliest ones and the chosen one, and what is left for others."""

    chosen: int
    candidates: tuple[Candidate, ...]
    rest: float  # the probability of all other tokens together
    entropy: float  # in nats, of the whole distribution
    given: bool = False  # not chosen by a search: a prompt, a prefix, or a text that the model was led along
    draw: float | None = None  # the random number of a sample, from 0 up to 1

    def __post_init__(self) -> None:
        total = math.fsum([math.exp(min(one.logp, 1.0)) for one in self.candidates]) + self.rest
        if abs(total - 1) > 1e-5 or self.rest < -1e-9:
            raise DataError(f"the probabilities of the candidates and the rest sum to {total:.6f}")
        if self.entropy < -1e-9:
            raise DataError(f"entropy is {self.entropy}, below 0")
        taken = [one for one in self.candidates if one.token == self.chosen]
        if len(taken) != 1:
            raise DataError(f"the chosen token {self.chosen} must stand once among the candidates")
        if self.draw is not None:
            low, high = taken[0].low, taken[0].high
            if low is None or high is None or not low - 1e-6 <= self.draw <= high + 1e-6:
                raise DataError(f"the draw {self.draw} is not in the part of the chosen token, {low} to {high}")


@dataclass(frozen=True)
class Node:
    """A hypothesis of a beam search: one more token after its parent."""

    parent: int | None  # its place among the nodes; None: the text begins here
    token: int
    text: str
    logp: float  # the model's log-probability of the token
    sum: float  # of the whole hypothesis, as the rules of the search left it
    score: float  # the sum divided by the length to the power of the length penalty
    state: str  # kept: it lived on; done: it ended; pruned: others were better

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise DataError(unknown_name("state", self.state, STATES))


@dataclass(frozen=True)
class Tree:
    """All that a beam search looked at, step by step and best first, and the hypothesis that it gave back."""

    width: int
    length_penalty: float
    nodes: tuple[Node, ...]
    best: int

    def __post_init__(self) -> None:
        if self.length_penalty < 0:
            raise DataError(f"length_penalty must be a number from 0, got {self.length_penalty}")
        lengths: list[int] = []
        for i, node in enumerate(self.nodes):
            if node.parent is not None and not 0 <= node.parent < i:
                raise DataError(f"the parent of node {i} is {node.parent}, which does not come before it")
            if node.parent is not None and self.nodes[node.parent].state != "kept":
                raise DataError(f"node {i} goes on from node {node.parent}, which was {self.nodes[node.parent].state}")
            lengths.append(1 if node.parent is None else lengths[node.parent] + 1)
            score = node.sum * lengths[i] ** -self.length_penalty
            if abs(score - node.score) > 1e-5 * max(1.0, abs(score)):
                raise DataError(f"node {i} has the score {node.score}, and sum and length give {score}")
        if not 0 <= self.best < len(self.nodes) or self.nodes[self.best].state == "pruned":
            raise DataError(f"best is {self.best}, which is no node that was kept or done")

    def path(self, node: int) -> list[int]:
        """The nodes of a hypothesis, from its first token to this one."""
        found: list[int] = []
        at: int | None = node
        while at is not None:
            found.append(at)
            at = self.nodes[at].parent
        return found[::-1]
