"""BLEU and chrF of a whole test set, and how far they would move with other test sentences.

Papineni et al. 2002, Popović 2015, Post 2018 (sacreBLEU, which does all the counting here); G1.

Both scores come from counts that add up over sentences. So the counts of each sentence are taken once, and the score
of any choice of sentences (a resample, the long ones) is that of a sum of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from regard.errors import DataError, UsageError, unknown_name

METRICS = ("bleu", "chrf")
TOKENIZERS = ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none")  # those that need no download
SEED = 12345  # sacreBLEU's own: with it the resamples are the same as there

Interval = tuple[float, float]


@dataclass(frozen=True)
class Score:
    """A corpus score from 0 to 100, with all that somebody else needs to get the same number."""

    name: str
    value: float
    signature: str  # sacreBLEU's
    interval: Interval | None = None  # 95%, by resampling

    def __str__(self) -> str:
        interval = "" if self.interval is None else " [{:.1f}, {:.1f}]".format(*self.interval)
        return f"{self.name} {self.value:.1f}{interval} ({self.signature})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class SentenceCounts:
    """What a score is computed from: one row of counts a sentence."""

    metric: Metric
    rows: np.ndarray  # (sentences, counts), whole numbers

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: np.ndarray) -> SentenceCounts:
        """The counts of some of the sentences."""
        return SentenceCounts(self.metric, self.rows[which])

    def score(self, *, samples: int = 0, seed: int = SEED) -> Score:
        """The score of these sentences together; with `samples` also its interval."""
        signature = self.metric.get_signature()
        interval = None
        if samples:
            interval = bootstrap_interval(self.resampled(samples=samples, seed=seed))
            signature.update("bs", samples)
            signature.update("seed", seed)
        total = self._of(self.rows.sum(0))
        return Score(total.name, total.score, signature.format(), interval)

    def resampled(self, *, samples: int, seed: int = SEED) -> np.ndarray:
        """The scores of test sets drawn from this one with replacement, (samples,).

        Koehn 2004. The same seed draws the same sentences, so two systems can be compared pairwise.
        """
        if samples < 1:
            raise UsageError(f"samples must be at least 1, got {samples}")
        draw = np.random.default_rng(seed)
        n = len(self.rows)
        rows = self.rows.astype(np.float64)  # products of floats are the fast ones, and exact for counts
        times = (np.bincount(draw.integers(n, size=n), minlength=n) for _ in range(samples))
        return np.array([self._of(row @ rows).score for row in times])

    def _of(self, total: np.ndarray) -> Any:
        # sacreBLEU's way from counts to a score, private there; its own significance tests use it in the same way.
        return self.metric._compute_score_from_stats(total.astype(int).tolist())


def bootstrap_interval(scores: np.ndarray) -> Interval:
    """The middle 95% of resampled scores: one in forty is cut off at each end."""
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
    """The counts of a metric ("bleu" or "chrf") for each pair of hypothesis and reference."""
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
    """BLEU of the hypotheses against one reference each; `samples` (1000, say) adds the 95% interval.

    Papineni et al. 2002. Both sides are plain text: `tokenize` is how sacreBLEU splits it for counting.
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
    """chrF, the F-score of character n-grams, against one reference each; `samples` as in corpus_bleu.

    Popović 2015 (chrF2: recall counts twice).
    """
    counts = count_sentences(hypotheses, references, metric="chrf", lowercase=lowercase)
    return counts.score(samples=samples, seed=seed)


def check_pairs(hypotheses: Sequence[str], references: Sequence[str], *, other: str = "references") -> None:
    """Raise DataError unless there is one hypothesis a reference (or a source), and at least one."""
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise TypeError(f"hypotheses and {other} must be lists of sentences, got one text")
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses)} hypotheses and {len(references)} {other} do not pair up; "
            "both must have one line for each sentence of the test set"
        )
    if not hypotheses:
        raise DataError("there are no sentences to score: the hypotheses are empty")


def _make_metric(metric: str, *, tokenize: str, lowercase: bool) -> Metric:
    if metric not in METRICS:
        raise UsageError(unknown_name("metric", metric, METRICS))
    if metric == "chrf":
        return CHRF(lowercase=lowercase)
    if tokenize not in TOKENIZERS:
        raise UsageError(unknown_name("tokenize", tokenize, TOKENIZERS))
    try:
        # With "none" the text is known to be tokenised, and sacreBLEU need not say that it looks so.
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
    except (ImportError, RuntimeError) as error:  # the splitters for Japanese and Korean are extras of sacreBLEU
        raise UsageError(f"tokenize={tokenize!r} cannot be used here: {' '.join(str(error).split())}") from error
