"""Significance tests: is one system better than another, or was it luck with the test sentences?

Koehn 2004, Post 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regard.evaluation.bleu import SEED, Interval, Score, bootstrap_interval, count_sentences


@dataclass(frozen=True)
class Comparison:
    """The comparison of two systems on the same test sentences; a is the baseline."""

    a: Score
    b: Score
    difference: float  # b - a
    interval: Interval  # 95%, of the difference
    wins: float  # fraction of the resampled test sets on which b is better
    p_value: float  # the probability of a difference of this size between equally good systems

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def paired_bootstrap(
    a: Sequence[str],
    b: Sequence[str],
    references: Sequence[str],
    *,
    metric: str = "bleu",
    samples: int = 1000,
    seed: int = SEED,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> Comparison:
    """Score both systems on the same resampled test sets, and compute how often and by how much b is better than a.

    Koehn 2004. `wins` is the statistic of the paper. The p-value is that of sacreBLEU's paired bootstrap: the fraction
    of resamples whose difference exceeds the mean difference by at least the difference of the systems.
    """
    systems = [count_sentences(x, references, metric=metric, tokenize=tokenize, lowercase=lowercase) for x in (a, b)]
    scores_a, scores_b = (system.resampled(samples=samples, seed=seed) for system in systems)
    score_a, score_b = (system.score(samples=samples, seed=seed) for system in systems)
    difference = score_b.value - score_a.value
    deviations = np.abs(scores_b - scores_a)
    deviations -= deviations.mean()
    # One is added to both counts, because the original test set is a sample as well. So the p-value is never 0.
    p_value = (int((deviations >= abs(difference)).sum()) + 1) / (samples + 1)
    return Comparison(
        score_a,
        score_b,
        difference,
        bootstrap_interval(scores_b - scores_a),
        float((scores_b > scores_a).mean()),
        p_value,
    )
