"""What a search reports to an observer: the candidates of each step, and what became of them.

E8. Without an observer, nothing is computed for it.

    G groups (an input of a beam search, a row of other searches)   K candidates   S slots (the beam's width, or 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class StepRecord:
    """One step of one batch, on the CPU.

    A hypothesis lives in a slot of its group; before step 0, slot 0 holds the empty hypothesis. Candidate c continues
    the hypothesis in slot parents[g, c] with tokens[g, c]. Candidates come best first; where there are fewer than K,
    the rest have score -inf.
    """

    step: int  # tokens that each hypothesis already has
    inputs: Tensor  # (G,) the numbers of the inputs
    alternatives: Tensor  # (G,) which of an input's samples; 0 in other searches
    tokens: Tensor  # (G, K)
    logps: Tensor  # (G, K) the model's log-probability of the token
    scores: Tensor  # (G, K) their sum over the whole hypothesis; of a beam, after its rules
    parents: Tensor  # (G, K)
    kept: Tensor  # (G, S) the candidate that lives in each slot from now on, -1 for an empty slot
    ended: Tensor  # (G, K) True for candidates that finished a hypothesis
    done: Tensor  # (G,) True for groups whose last step this is
    draws: Tensor | None = None  # (G,) the uniform random number of each sample
    probabilities: Tensor | None = None  # (G, K) of the distribution that was sampled, after temperature and filters


class Observer(Protocol):
    """Receives the steps of a search.

    Greedy search and sampling report `candidates` candidates; beam search reports all that it looked at, twice its
    width.
    """

    candidates: int

    def step(self, record: StepRecord) -> None:
        """Called after each choice. The tokens of a prefix are not chosen, so they are not reported."""


class Recorder:
    """An observer that keeps all records."""

    def __init__(self, candidates: int = 8) -> None:
        self.candidates = candidates
        self.records: list[StepRecord] = []

    def step(self, record: StepRecord) -> None:
        self.records.append(record)
