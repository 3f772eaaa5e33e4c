"""BLEU and chrF of a test set, with confidence intervals by bootstrap resampling.

Papineni et al. 2002, Popović 2015, Post 2018 (sacreBLEU, which computes all counts); G1.

Both scores are computed from counts that add up over sentences. So each sentence is counted once, and the score of any
subset of sentences (a resample, the long ones) comes from a sum of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import DataError, UsageError, unknown_name

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

METRICS = ("bleu", "chrf")
TOKENIZERS = ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none")  # which need no download
SEED = 12345  # sacreBLEU's default, which gives the same resamples

Interval = tuple[float, float]


@dataclass(frozen=True)
class Score:
    """A corpus score from 0 to 100, with the signature that makes it reproducible."""

    name: str
    value: float
    signature: str  # sacreBLEU's
    interval: Interval | None = None  # 95%, by bootstrap resampling

    def __str__(self) -> str:
        interval = "" if self.interval is None else " [{:.1f}, {:.1f}]".format(*self.interval)
        return f"{self.name} {self.value:.1f}{interval} ({self.signature})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class SentenceCounts:
    """The counts from which a score is computed: one row per sentence."""

    metric: Metric
    rows: np.ndarray  # (sentences, counts), whole numbers

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: np.ndarray) -> SentenceCounts:
        """Return the counts of some of the sentences."""
        return SentenceCounts(self.metric, self.rows[which])

    def score(self, *, samples: int = 0, seed: int = SEED) -> Score:
        """Return the score of all sentences together; with `samples` also its interval."""
        signature = self.metric.get_signature()
        interval = None
        if samples:
            interval = bootstrap_interval(self.resampled(samples=samples, seed=seed))
            signature.update("bs", samples)
            signature.update("seed", seed)
        total = self._of(self.rows.sum(0))
        return Score(total.name, total.score, signature.format(), interval)

    def resampled(self, *, samples: int, seed: int = SEED) -> np.ndarray:
        """Return the scores of `samples` test sets drawn from this one with replacement.

        Koehn 2004. The same seed draws the same sentences, so two systems can be compared pairwise.
        """
        if samples < 1:
            raise UsageError(f"samples must be at least 1, got {samples}")
        draw = np.random.default_rng(seed)
        n = len(self.rows)
        rows = self.rows.astype(np.float64)  # float products are fast, and exact for counts
        times = (np.bincount(draw.integers(n, size=n), minlength=n) for _ in range(samples))
        return np.array([self._of(row @ rows).score for row in times])

    def _of(self, total: np.ndarray) -> Any:
        # A private method of sacreBLEU; its own significance tests use it in the same way.
        return self.metric._compute_score_from_stats(total.astype(int).tolist())


def bootstrap_interval(scores: np.ndarray) -> Interval:
    """Return the middle 95% of resampled scores: one in forty is dropped at each end."""
    ordered = np.sort(scores)
    cut = len(ordered) // 40
    return float(ordered[cut]), float(ordered[-1 - cut])


def count_sentences(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    metric: str = "bleu",
    tokenize: str = "13a",
    lowercase: bool = False,
) -> SentenceCounts:
    """Count the statistics of a metric ("bleu" or "chrf") for each pair of hypothesis and reference."""
    check_pairs(hypotheses, references)
    counter = _make_metric(metric, tokenize=tokenize, lowercase=lowercase)
    rows = counter._extract_corpus_statistics(hypotheses, [references])
    return SentenceCounts(counter, np.array(rows, dtype=np.int64))


def corpus_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = 0,
    seed: int = SEED,
) -> Score:
    """Return BLEU of the hypotheses against one reference each; `samples` (such as 1000) adds the 95% interval.

    Papineni et al. 2002. Both sides are plain text, which sacreBLEU tokenizes with `tokenize`.
    """
    counts = count_sentences(hypotheses, references, metric="bleu", tokenize=tokenize, lowercase=lowercase)
    return counts.score(samples=samples, seed=seed)


def corpus_chrf(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    samples: int = 0,
    seed: int = SEED,
) -> Score:
    """Return chrF, the F-score of character n-grams, against one reference each; `samples` as in corpus_bleu.

    Popović 2015 (chrF2: recall counts twice).
    """
    counts = count_sentences(hypotheses, references, metric="chrf", lowercase=lowercase)
    return counts.score(samples=samples, seed=seed)


def check_pairs(hypotheses: Sequence[str], references: Sequence[str], *, other: str = "references") -> None:
    """Raise DataError unless there is one hypothesis per reference (or source), and at least one."""
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise TypeError(f"hypotheses and {other} must be lists of sentences, got one text")
    if len(hypotheses) != len(references):
        raise DataError(
            f"there are {len(hypotheses)} hypotheses but {len(references)} {other}; "
            "both must have one line for each sentence of the test set"
        )
    if not hypotheses:
        raise DataError("there are no sentences to score: the hypotheses are empty")


def _make_metric(metric: str, *, tokenize: str, lowercase: bool) -> Metric:
    from sacrebleu.metrics.bleu import BLEU  # here, because translating needs no scores
    from sacrebleu.metrics.chrf import CHRF

    if metric not in METRICS:
        raise UsageError(unknown_name("metric", metric, METRICS))
    if metric == "chrf":
        return CHRF(lowercase=lowercase)
    if tokenize not in TOKENIZERS:
        raise UsageError(unknown_name("tokenize", tokenize, TOKENIZERS))
    try:
        # With "none" the text is known to be tokenized, so sacreBLEU need not warn about it.
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
    except (ImportError, RuntimeError) as error:  # the tokenizers for Japanese and Korean are extras of sacreBLEU
        raise UsageError(f"tokenize={tokenize!r} cannot be used here: {' '.join(str(error).split())}") from error
