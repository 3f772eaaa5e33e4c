"""Pairs one after another, and pairs without their final mark: what is drawn, how often, and both sides alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from regard.text.augment.joined_sentences import MAX_FOLLOWING, drop_marks, final_marks, join_pairs
from regard.text.batches.batch import TokenRows
from regard.text.tokenizers.special_tokens import UNKNOWN
from regard.text.tokenizers.subwords import train_subwords

COUNT = 4000
STREAM = (1, 2, 3)


def numbered() -> tuple[TokenRows, TokenRows]:
    """Pair i: its own number on the source side, once more and negative on the target side, 1 to 3 times."""
    return TokenRows.of([[10 + i] for i in range(COUNT)]), TokenRows.of([[-10 - i] * (1 + i % 3) for i in range(COUNT)])


def joined(**settings: object) -> list[tuple[list[int], list[int]]]:
    given = {"share": 0.3, "stream": STREAM, "limit": 100, "among": np.arange(COUNT), "unknown": False, **settings}
    return list(zip(*join_pairs(numbered(), **given), strict=True))  # type: ignore[arg-type]


def test_both_sides_go_on_with_the_same_pairs() -> None:
    found = joined()
    for i, (source, target) in enumerate(found):
        assert source[0] == 10 + i
        assert target == [-token for token in source for _ in range(1 + (token - 10) % 3)]
    counts = Counter(len(source) - 1 for source, _ in found)
    assert counts[0] / COUNT == pytest.approx(0.7, abs=0.03)
    assert {*counts} == {*range(MAX_FOLLOWING + 1)}
    for more in range(1, MAX_FOLLOWING + 1):
        assert counts[more] / COUNT == pytest.approx(0.3 / MAX_FOLLOWING, abs=0.02)
    followers = Counter(token for source, _ in found for token in source[1:])
    assert max(followers.values()) < 8  # any pair may follow
    assert found == joined() and found != joined(stream=(1, 2, 4))
    assert joined(share=0.0) == list(zip(*numbered(), strict=True))


def test_only_some_pairs_may_follow() -> None:
    some = np.array([3, 5, 8])
    assert {token for source, _ in joined(among=some) for token in source[1:]} == {13, 15, 18}


def test_what_would_get_too_long_stays_alone() -> None:
    free, limited = joined(), joined(limit=4)  # which only the target can reach
    for one, other, alone in zip(free, limited, zip(*numbered(), strict=True), strict=True):
        assert other == (one if len(one[1]) <= 4 else alone)
    assert {len(target) for _, target in limited} == {1, 2, 3, 4}


def test_unknown_words_follow_on_both_sides() -> None:
    found = joined(unknown=True)
    assert all(source.count(UNKNOWN) == target.count(UNKNOWN) for source, target in found)
    more = [token for source, _ in found for token in source[1:]]
    assert more.count(UNKNOWN) / len(more) == pytest.approx(0.1, abs=0.02)


def test_tokens_of_joined_sentences_are_tokens_of_the_joined_text() -> None:
    texts = ["Le chat dort.", "Tu viens ?", "Non !"]
    tokenizer = train_subwords(texts * 3, size=None, kind="unigram", lossless=False)
    for one, other in product(texts, repeat=2):
        assert tokenizer.encode(one) + tokenizer.encode(other) == tokenizer.encode(f"{one} {other}")


def dropped(source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], share: float = 1.0) -> list[object]:
    marks = np.zeros(9, bool)
    marks[[7, 8]] = True
    rows = drop_marks((TokenRows.of(source), TokenRows.of(target)), (marks, marks), share=share, stream=STREAM)
    return list(zip(*rows, strict=True))


def test_marks_go_on_both_sides_or_not_at_all() -> None:
    source = [[1, 7], [1, 7], [1, 2, 8, 7], [7], [], [1, 7, 2], [7, 7, 7, 7], [1, 7, 7, 7, 7]]
    target = [[3, 4, 8], [3], [3, 7], [3, 7], [3, 7], [3, 7], [3, 7], [3, 7]]
    untouched = [([*one], [*other]) for one, other in zip(source, target, strict=True)]
    assert dropped(source, target) == [
        ([1], [3, 4]),
        untouched[1],  # the target has none
        ([1, 2], [3]),  # a mark may have several tokens
        untouched[3],  # nothing would be left
        untouched[4],
        untouched[5],  # inside a sentence marks stay
        ([7], [3]),
        ([1, 7], [3]),  # at most three
    ]
    assert dropped(source, target, share=0.0) == untouched
    assert dropped([[], []], [[], []]) == [([], [])] * 2


def test_the_share_of_bare_pairs() -> None:
    found = dropped([[1, 7]] * COUNT, [[2, 7]] * COUNT, share=0.2)
    assert set(map(str, found)) == {"([1], [2])", "([1, 7], [2, 7])"}
    assert found.count(([1], [2])) / COUNT == pytest.approx(0.2, abs=0.02)


def test_which_tokens_are_marks() -> None:
    tokenizer = train_subwords(
        ["Tu viens ?", "Tu viens\u00a0?", "Non!", "Oui...", "a, b."] * 9, size=None, kind="bpe", lossless=False
    )
    marks = final_marks(tokenizer)
    assert marks.shape == (tokenizer.size,)
    found = {tokenizer.pieces([i])[0] for i in np.flatnonzero(marks)}
    assert {".", "?", "!", "\u00a0"} <= found
    assert not any(character.isalnum() or character in ",<>" for piece in found for character in piece)
