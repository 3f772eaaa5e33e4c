"""Is one system better than another, or was it luck with the test sentences?

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
    """Two systems on the same test sentences; a is the baseline."""

    a: Score
    b: Score
    difference: float  # what b has more than a
    interval: Interval  # 95%, of the difference
    wins: float  # share of the resampled test sets on which b is ahead
    p_value: float  # how likely a difference of this size is between systems that are equally good

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
    """Score both systems on the same resampled test sets, and see how often and how far b is ahead of a.

    Koehn 2004. `wins` is the statement of the paper. The p-value is that of sacreBLEU's paired bootstrap:
    the share of resamples whose difference lies above their mean difference by as much as the systems differ.
    """
    systems = [count_sentences(x, references, metric=metric, tokenize=tokenize, lowercase=lowercase) for x in (a, b)]
    scores_a, scores_b = (system.resampled(samples=samples, seed=seed) for system in systems)
    score_a, score_b = (system.score(samples=samples, seed=seed) for system in systems)
    difference = score_b.value - score_a.value
    strays = np.abs(scores_b - scores_a)
    strays -= strays.mean()
    # One is added to both counts since the test set as it is is a draw as well, so the p-value is never 0.
    p_value = (int((strays >= abs(difference)).sum()) + 1) / (samples + 1)
    return Comparison(
        score_a,
        score_b,
        difference,
        bootstrap_interval(scores_b - scores_a),
        float((scores_b > scores_a).mean()),
        p_value,
    )
