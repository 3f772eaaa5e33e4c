"""Minimum Bayes risk decoding: of many candidate texts, the one that is most like all the others.

Kumar and Byrne 2004; with samples, Eikema and Aziz 2020. The most probable text may be an outlier, even an empty text.
A text that many of a model's samples agree on rarely is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from regard.decoding.searches.logit_rules import Rule
from regard.decoding.searches.observer import Observer
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Hypothesis, Inputs, NextInputs, Run, Search
from regard.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

SAMPLE = Sample()
Utility = Callable[[Sequence[int], Sequence[int]], float]  # of a text, were the other one true; both without END


def overlap(text: Sequence[int], reference: Sequence[int], *, longest: int = 4, beta: float = 2.0) -> float:
    """How much two texts have in common, from 0 to 1: chrF (Popović 2015) over tokens in place of characters.

    The mean precision and recall of phrases of 1, 2, … tokens, as many as both texts have, and their F-score, in which
    recall counts `beta` times as much.
    """
    if not text or not reference:
        return float(len(text) == len(reference))
    orders = range(1, min(longest, len(text), len(reference)) + 1)
    precision = recall = 0.0
    for n in orders:
        ours, theirs = phrases(text, n), phrases(reference, n)
        common = (ours & theirs).total()
        precision += common / ours.total() / len(orders)
        recall += common / theirs.total() / len(orders)
    return (1 + beta**2) * precision * recall / ((beta**2 * precision + recall) or 1.0)


def phrases(tokens: Sequence[int], n: int) -> Counter[tuple[int, ...]]:
    """The phrases of n tokens in a text, counted."""
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


@dataclass(frozen=True)
class MinimumRisk:
    """Of `candidates` texts that another search finds, take the one with the highest mean utility against all of them.

    Each candidate stands for one possible truth, so a text that was drawn twice counts twice. `ranking` is that mean.
    The utility is any function of two token lists, for example one that decodes them and compares words.
    """

    candidates: int = 32
    search: Search = SAMPLE
    utility: Utility = overlap

    streams: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.candidates, bool) or not isinstance(self.candidates, int) or self.candidates < 1:
            raise UsageError(f"candidates must be a whole number from 1, got {self.candidates!r}")

    @property
    def rules(self) -> Sequence[Rule]:
        return self.search.rules

    def rows(self, alternatives: int) -> int:
        if alternatives > self.candidates:
            raise UsageError(
                f"alternatives={alternatives} is more than candidates={self.candidates}: ask for more candidates"
            )
        return self.search.rows(self.candidates)

    def begin(self, inputs: Inputs) -> Run:
        return RiskRun(self, inputs)


class RiskRun:
    """The other search at work, and its results in another order; equal texts are one result."""

    def __init__(self, search: MinimumRisk, inputs: Inputs) -> None:
        self.utility, self.wanted = search.utility, inputs.alternatives
        self.ends = inputs.special.ends
        self.run = search.search.begin(inputs._replace(alternatives=search.candidates))
        self.together = self.run.together

    @property
    def numbers(self) -> Tensor:
        return self.run.numbers

    def choose(self, logps: Tensor, model_logps: Tensor, observer: Observer | None) -> NextInputs:
        return self.run.choose(logps, model_logps, observer)

    def written(self) -> Tensor:
        return self.run.written()

    def results(self) -> dict[int, list[Hypothesis]]:
        return {number: self._ranked(drawn)[: self.wanted] for number, drawn in self.run.results().items()}

    def _ranked(self, drawn: Sequence[Hypothesis]) -> list[Hypothesis]:
        texts = [tuple(token for token in hypothesis.tokens if token not in self.ends) for hypothesis in drawn]
        counts = Counter(texts)
        first = dict(reversed([*zip(texts, drawn, strict=True)]))  # of equals the first
        ranked = [
            replace(first[text], ranking=sum(n * self.utility(text, other) for other, n in counts.items()) / len(drawn))
            for text in counts
        ]
        return sorted(ranked, key=lambda hypothesis: -hypothesis.ranking)
