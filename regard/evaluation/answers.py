"""Scores of answers: exact match, and the F1 of their words.

Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", section 6.1; G3. Answers are
compared without case, punctuation, articles and extra blanks.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from regard.evaluation.bleu import check_pairs
from regard.evaluation.rouge import f1

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer_scores(answers: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the exact matches and the mean F1 of all answers, in percent.

    >>> answer_scores(["The park.", "three apples"], ["the park", "three"])["exact"]
    50.0
    """
    check_pairs(answers, references)
    pairs = [(normalized(answer), normalized(reference)) for answer, reference in zip(answers, references, strict=True)]
    exact = sum(answer == reference for answer, reference in pairs)
    overlap = sum(word_f1(answer, reference) for answer, reference in pairs)
    return {"exact": 100 * exact / len(pairs), "f1": 100 * overlap / len(pairs)}


def normalized(answer: str) -> str:
    """Return an answer in lower case, without punctuation and articles, with single blanks."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def word_f1(answer: str, reference: str) -> float:
    """Return the F1 of the words of two normalized answers; two empty ones agree."""
    words, expected = answer.split(), reference.split()
    if not words or not expected:
        return float(words == expected)
    return f1((Counter(words) & Counter(expected)).total(), len(words), len(expected))
