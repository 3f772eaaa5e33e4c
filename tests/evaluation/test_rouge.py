"""ROUGE against worked examples and the package rouge-score; exact match and F1 of answers."""

from __future__ import annotations

import random

import pytest

from regard.errors import DataError
from regard.evaluation.answers import answer_scores, normalized
from regard.evaluation.rouge import corpus_rouge, longest_common_subsequence, rouge


def test_rouge_of_the_paper() -> None:
    """Lin 2004, section 3.1: both have three of four words, and one pair, in common; only one has them in order."""
    reference = "police killed the gunman"
    assert rouge("police kill the gunman", reference) == {"rouge1": 0.75, "rouge2": 1 / 3, "rougeL": 0.75}
    assert rouge("the gunman kill police", reference) == {"rouge1": 0.75, "rouge2": 1 / 3, "rougeL": 0.5}


def test_rouge_counts_a_repeated_word_once_if_the_reference_has_it_once() -> None:
    assert rouge("the the the", "the cat")["rouge1"] == pytest.approx(2 * 1 / 5)
    assert rouge("", "the cat") == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}
    assert corpus_rouge(["a b", "x"], ["A, b!", "y"]) == {"rouge1": 50.0, "rouge2": 50.0, "rougeL": 50.0}


def test_rouge_is_that_of_rouge_score() -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rouge1", "rouge2", "rougeL"])
    draw = random.Random(0)
    words = ["the", "The", "cat", "sat.", "on", "a-b", "42", "mat,", "it's"]
    for _ in range(300):
        written, reference = (" ".join(draw.choices(words, k=draw.randint(0, 12))) for _ in range(2))
        expected = {name: score.fmeasure for name, score in scorer.score(reference, written).items()}
        assert rouge(written, reference) == pytest.approx(expected), (written, reference)


def test_longest_common_subsequence() -> None:
    assert longest_common_subsequence(list("abcbdab"), list("bdcaba")) == 4  # Cormen et al., section 15.4
    assert longest_common_subsequence([], ["a"]) == 0


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("The Park.", "park"),
        ("  an  apple, a pear ", "apple pear"),
        ("Theatre", "theatre"),
        ("U.S.", "us"),
        ("the", ""),
    ],
)
def test_answers_are_compared_without_case_articles_and_punctuation(answer: str, plain: str) -> None:
    assert normalized(answer) == plain


def test_exact_match_and_f1() -> None:
    scores = answer_scores(["on Monday", "three red apples", "no"], ["Monday", "three apples", "no."])
    assert scores["exact"] == pytest.approx(100 / 3)
    assert scores["f1"] == pytest.approx(100 * (2 / 3 + 4 / 5 + 1) / 3)
    assert answer_scores(["the"], ["a"]) == {"exact": 100.0, "f1": 100.0}  # both are empty
    assert answer_scores([""], ["no"]) == {"exact": 0.0, "f1": 0.0}
    with pytest.raises(DataError, match="2 hypotheses but 1 references"):
        answer_scores(["a", "b"], ["a"])
