"""Scores by length against sacreBLEU on sentences picked out by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from sacrebleu.metrics import BLEU, CHRF

from regard.errors import DataError, UsageError
from regard.evaluation.by_length import Bucket, scores_by_length


def ranges(buckets: list[Bucket]) -> list[tuple[int, int]]:
    return [(bucket.low, bucket.high) for bucket in buckets]


def by_lengths(lengths: list[int], **settings) -> list[Bucket]:
    """Buckets of sources with these lengths."""
    texts = [" ".join(["word"] * n) for n in lengths]
    return scores_by_length(texts, texts, texts, samples=2, **settings)


def test_each_bucket_is_a_corpus_of_its_own(references, system) -> None:
    """Given edges: up to 10 words, 11 to 18, above; the sources are the references in capitals."""
    hypotheses, sources = system(0.3), [reference.upper() for reference in references]
    buckets = scores_by_length(hypotheses, references, sources, edges=(10, 18), minimum=50)
    assert ranges(buckets) == [(3, 10), (11, 18), (19, 25)]
    assert sum(bucket.count for bucket in buckets) == 300
    for bucket in buckets:
        inside = [i for i, source in enumerate(sources) if bucket.low <= len(source.split()) <= bucket.high]
        part = [hypotheses[i] for i in inside], [[references[i] for i in inside]]
        assert bucket.count == len(inside)
        for ours, metric in ((bucket.bleu, BLEU()), (bucket.chrf, CHRF())):
            expected = metric.corpus_score(*part, n_bootstrap=1000)
            assert ours.value == expected.score
            assert (ours.interval[1] - ours.interval[0]) / 2 == pytest.approx(expected._ci, abs=1e-3)
        assert bucket.merged == 1
        assert bucket.middle == (bucket.low + bucket.high) / 2


def test_length_is_that_of_the_source() -> None:
    buckets = scores_by_length(["a", "b"], ["a", "b"], ["w w w", "w"], edges=(2,), minimum=1, samples=2)
    assert [(bucket.low, bucket.high, bucket.count) for bucket in buckets] == [(1, 2, 1), (3, 3, 1)]


def test_edges_outside_the_lengths_cut_nothing() -> None:
    """An edge at the shortest length parts it from the rest; at the longest or beyond there is nothing to part."""
    assert ranges(by_lengths([3, 3, 5], edges=(1, 2, 3, 5, 9), minimum=1)) == [(3, 3), (4, 5)]


def test_small_buckets_join_their_smaller_neighbour() -> None:
    """1 to 5: 9 sentences, 6 to 10: 2, 11 to 15: 4, above: 9. The second joins the third, and that is enough."""
    lengths = [3] * 9 + [7] * 2 + [12] * 4 + [20] * 9
    buckets = by_lengths(lengths, edges=(5, 10, 15), minimum=5)
    assert [(b.low, b.high, b.count, b.merged) for b in buckets] == [(3, 5, 9, 1), (6, 15, 6, 2), (16, 20, 9, 1)]
    buckets = by_lengths(lengths, edges=(5, 10, 15), minimum=7)
    assert [(b.low, b.high, b.count, b.merged) for b in buckets] == [(3, 15, 15, 3), (16, 20, 9, 1)]


def test_empty_buckets_are_joined_too() -> None:
    buckets = by_lengths([2, 2, 30, 30], edges=(5, 10, 15), minimum=2)
    assert [(b.low, b.high, b.count, b.merged) for b in buckets] == [(2, 15, 2, 3), (16, 30, 2, 1)]


def test_fewer_sentences_than_the_minimum_are_one_bucket() -> None:
    (bucket,) = by_lengths([3, 8, 20], minimum=200)
    assert (bucket.low, bucket.high, bucket.count) == (3, 20, 3)


def test_chosen_edges_are_equal_parts() -> None:
    """3 to 30 words are 28 lengths: seven parts of 4."""
    buckets = by_lengths([n for n in range(3, 31) for _ in range(3)], minimum=10)
    assert ranges(buckets) == [(low, low + 3) for low in range(3, 31, 4)]
    assert ranges(by_lengths([4] * 5, minimum=2)) == [(4, 4)]


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=60),
    edges=st.none() | st.lists(st.integers(-3, 45), min_size=1, max_size=6, unique=True).map(sorted),
    minimum=st.integers(1, 20),
)
def test_buckets_cover_every_sentence_once(lengths: list[int], edges: list[int] | None, minimum: int) -> None:
    buckets = by_lengths(lengths, edges=edges, minimum=minimum)
    assert (buckets[0].low, buckets[-1].high) == (min(lengths), max(lengths))
    assert all(a.high + 1 == b.low for a, b in pairwise(buckets))
    assert [bucket.count for bucket in buckets] == [sum(b.low <= n <= b.high for n in lengths) for b in buckets]
    assert len(buckets) == 1 or min(bucket.count for bucket in buckets) >= minimum


def test_to_dict() -> None:
    plain = by_lengths([3] * 4, minimum=2)[0].to_dict()
    assert (plain["low"], plain["high"], plain["count"], plain["merged"]) == (3, 3, 4, 1)
    assert plain["chrf"]["name"] == "chrF2"


def test_errors() -> None:
    with pytest.raises(DataError, match="there are 1 hypotheses but 2 sources"):
        scores_by_length(["a"], ["a"], ["a", "b"])
    with pytest.raises(DataError, match="2 hypotheses but 1 references"):
        scores_by_length(["a", "b"], ["a"], ["a", "b"])
    with pytest.raises(DataError, match="no sentences"):
        scores_by_length([], [], [])
    for edges in ((), (10, 10), (20, 10)):
        with pytest.raises(UsageError, match=r"edges must be increasing lengths"):
            by_lengths([1, 2], edges=edges)
