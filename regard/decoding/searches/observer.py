"""What a search tells whoever watches it: the candidates of each step, and what became of them.

E8. Nothing is computed for an observer that is not there.

    G groups (an input of a beam search, a row of the others)   K candidates   S slots (the beam's width, or 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class StepRecord:
    """One step of one batch, on the CPU.

    A hypothesis lives in a slot of its group; slot 0 holds the empty one before step 0. Candidate c continues the
    hypothesis in slot parents[g, c] by tokens[g, c]. Candidates come best first; where there are fewer than K, the
    rest have score -inf.
    """

    step: int  # tokens that each hypothesis has already
    inputs: Tensor  # (G,) places in the caller's list
    alternatives: Tensor  # (G,) which of an input's samples; 0 in other searches
    tokens: Tensor  # (G, K)
    logps: Tensor  # (G, K) the model's log-probability of that token
    scores: Tensor  # (G, K) the sum of them over the whole hypothesis, a beam's as its rules left them
    parents: Tensor  # (G, K)
    kept: Tensor  # (G, S) the candidate that lives in each slot from now on, -1 for an empty slot
    ended: Tensor  # (G, K) true for candidates that finished a hypothesis
    done: Tensor  # (G,) true for groups whose last step this is
    draws: Tensor | None = None  # (G,) the uniform number of each sample
    probabilities: Tensor | None = None  # (G, K) what was drawn from: after temperature and filters


class Observer(Protocol):
    """Whoever wants to watch a search.

    `candidates` is how many candidates greedy and sampling report; beam search reports all that it looked at, twice
    its width.
    """

    candidates: int

    def step(self, record: StepRecord) -> None:
        """Called after each choice; tokens of a prefix are not chosen, so they are not reported."""


class Recorder:
    """An observer that keeps all records."""

    def __init__(self, candidates: int = 8) -> None:
        self.candidates = candidates
        self.records: list[StepRecord] = []

    def step(self, record: StepRecord) -> None:
        self.records.append(record)
