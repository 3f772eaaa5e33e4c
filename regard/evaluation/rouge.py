"""ROUGE: how much of a reference summary a summary contains, by words, by pairs of words, and in order.

Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", sections 2 and 3; G3. Words are compared in lower
case and without stemming; for English texts the scores are those of the package `rouge-score`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from regard.evaluation.bleu import check_pairs

WORD = re.compile(r"[^\W_]+")
ROUGE = ("rouge1", "rouge2", "rougeL")


def corpus_rouge(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the means of ROUGE-1, ROUGE-2 and ROUGE-L (F1, from 0 to 100) over all summaries.

    >>> corpus_rouge(["the cat sat here"], ["the cat lay"])["rouge2"]
    40.0
    """
    check_pairs(hypotheses, references)
    scores = [rouge(*pair) for pair in zip(hypotheses, references, strict=True)]
    return {name: 100 * sum(score[name] for score in scores) / len(scores) for name in ROUGE}


def rouge(hypothesis: str, reference: str) -> dict[str, float]:
    """Return the F1 scores of one summary, from 0 to 1."""
    written, expected = (WORD.findall(text.lower()) for text in (hypothesis, reference))
    common = [_common_ngrams(written, expected, 1), _common_ngrams(written, expected, 2)]
    return {
        "rouge1": f1(common[0], len(written), len(expected)),
        "rouge2": f1(common[1], len(written) - 1, len(expected) - 1),
        "rougeL": f1(longest_common_subsequence(written, expected), len(written), len(expected)),
    }


def f1(common: int, written: int, expected: int) -> float:
    """Return the harmonic mean of precision common / written and recall common / expected."""
    return 2 * common / (written + expected) if common else 0.0


def longest_common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, by dynamic programming over the prefixes of b."""
    lengths = [0] * (len(b) + 1)  # lengths[j]: of the words of a so far and b[:j]
    for word in a:
        diagonal = 0
        for j, other in enumerate(b, start=1):
            diagonal, lengths[j] = lengths[j], diagonal + 1 if word == other else max(lengths[j], lengths[j - 1])
    return lengths[-1]


def _common_ngrams(a: Sequence[str], b: Sequence[str], n: int) -> int:
    """Return the number of n-grams in both texts; a repeated one counts as often as in the text with fewer of it."""
    first, second = (Counter(zip(*(words[i:] for i in range(n)), strict=False)) for words in (a, b))
    return (first & second).total()
