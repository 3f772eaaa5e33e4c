"""BLEU and chrF by sentence length: does quality fall with the length?

Bahdanau et al. 2015, figure 2; D17, G1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from regard.errors import UsageError
from regard.evaluation.bleu import METRICS, SEED, Score, check_pairs, count_sentences

MAX_BUCKETS = 8  # if the edges are chosen automatically
MIN_SENTENCES = 200  # of a bucket


@dataclass(frozen=True)
class Bucket:
    """The scores of sentences whose source has `low` to `high` words, both included."""

    low: int
    high: int
    count: int
    bleu: Score
    chrf: Score
    merged: int = 1  # the number of buckets that were merged into this one because they had few sentences

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def scores_by_length(
    hypotheses: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    *,
    edges: Sequence[int] | None = None,
    minimum: int = MIN_SENTENCES,
    samples: int = 1000,
    seed: int = SEED,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> list[Bucket]:
    """Return scores with 95% intervals for each range of source lengths, in words separated by spaces.

    `edges` are the highest lengths of all buckets but the last: (10, 20) gives up to 10, 11 to 20, and above. By
    default the range is split into up to 8 equal parts. A bucket with fewer than `minimum` sentences is merged with its
    smaller neighbour, until all are large enough or only one is left. The buckets depend only on the sources, so they
    are the same for all systems.
    """
    check_pairs(hypotheses, sources, other="sources")
    lengths = np.array([len(source.split()) for source in sources])
    shortest, longest = int(lengths.min()), int(lengths.max())
    inner = _equal_edges(shortest, longest) if edges is None else _checked(edges)
    inner = [edge for edge in inner if shortest <= edge < longest]
    ranges = _merge(lengths, [shortest - 1, *inner, longest], minimum)
    counts = [
        count_sentences(hypotheses, references, metric=metric, tokenize=tokenize, lowercase=lowercase)
        for metric in METRICS
    ]
    buckets = []
    for low, high, merged in ranges:
        inside = (low <= lengths) & (lengths <= high)
        bleu, chrf = (count.take(inside).score(samples=samples, seed=seed) for count in counts)
        buckets.append(Bucket(low, high, int(inside.sum()), bleu, chrf, merged))
    return buckets


def _equal_edges(shortest: int, longest: int) -> list[int]:
    width = -(-(longest - shortest + 1) // MAX_BUCKETS)  # rounded up
    return list(range(shortest + width - 1, longest, width))


def _checked(edges: Sequence[int]) -> list[int]:
    if not edges or any(b <= a for a, b in pairwise(edges)):
        raise UsageError(f"edges must be increasing lengths, such as (10, 20, 30); got {tuple(edges)}")
    return list(edges)


def _merge(lengths: np.ndarray, edges: list[int], minimum: int) -> list[tuple[int, int, int]]:
    """Merge small buckets with the smaller neighbour; return (lowest length, highest length, number merged) of each."""
    counts = [int(((low < lengths) & (lengths <= high)).sum()) for low, high in pairwise(edges)]
    merged_counts = [1] * len(counts)
    while len(counts) > 1 and min(counts) < minimum:
        i = counts.index(min(counts))
        neighbours = [j for j in (i - 1, i + 1) if 0 <= j < len(counts)]
        left = min(i, min(neighbours, key=counts.__getitem__))
        counts[left : left + 2] = [counts[left] + counts[left + 1]]
        merged_counts[left : left + 2] = [merged_counts[left] + merged_counts[left + 1]]
        del edges[left + 1]
    return [(low + 1, high, merged) for (low, high), merged in zip(pairwise(edges), merged_counts, strict=True)]
