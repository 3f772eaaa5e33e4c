"""Words that both sides have: which ones, how many are hidden, and that all get their turn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from regard.text.augment.copied_words import SharedWords, shared_words
from regard.text.random_streams import random_keys

words = st.lists(st.sampled_from(["Anna", "Bob", " Bob", "Bob\n", "of", "Rome", "Ro"]), max_size=6)


@given(st.lists(st.tuples(words, words), max_size=8))
@example([(["of", "Bob"], ["Ro"])])  # the only short words
def test_shared_words_by_hand(pairs: list[tuple[list[str], list[str]]]) -> None:
    """Once on each side, of three characters or more, blanks around them not counted."""
    expected, starts = [], [0, 0]
    for pair in pairs:
        texts = [[word.strip() for word in side] for side in pair]
        counts = [Counter(side) for side in texts]
        both = {word for word in counts[0] if len(word) > 2 and counts[0][word] == 1 == counts[1][word]}
        expected.append({tuple(starts[side] + texts[side].index(word) for side in (0, 1)) for word in both})
        starts = [start + len(side) for start, side in zip(starts, pair, strict=True)]
    arrays = shared_words([one for one, _ in pairs], [other for _, other in pairs])
    assert arrays["counts"].tolist() == list(map(len, expected))
    got = iter(zip(arrays["source"].tolist(), arrays["target"].tolist(), strict=True))
    assert [{next(got) for _ in range(count)} for count in arrays["counts"]] == expected


def test_a_share_of_the_pairs_has_one_word_hidden() -> None:
    sides = [["the", "Ana", "Bob", "Cleo"], ["no", "Cleo", "Bob", "Ana"]] * 1, [["Ana", "Bob", "Cleo"], ["Dan"]] * 1
    count = 6000
    copies = SharedWords(shared_words(sides[0] * count, sides[1] * count))
    source, target = (places[copies.chosen(0.3, (1, 0), (1, 1))] for places in copies.positions)
    assert (np.diff(source) > 0).all() and (np.diff(target) > 0).all()  # in order, at most one a pair
    assert len({*(source // 8)}) == len(source)
    assert len(source) / count == pytest.approx(0.3, abs=0.02)  # every other pair shares nothing
    assert set(source % 8) == {1, 2, 3}
    assert (source % 8 - 1).tolist() == (target % 4).tolist()  # the same word on both sides
    shares = Counter((source % 8).tolist())
    assert all(share / len(source) == pytest.approx(1 / 3, abs=0.05) for share in shares.values())
    chosen = copies.chosen(0.3, (1, 0), (1, 1)).tolist()
    assert copies.positions[0][chosen].tolist() == source.tolist()
    assert copies.chosen(0.3, (2, 0), (1, 1)).tolist() != chosen
    assert copies.chosen(0.0, (1, 0), (1, 1)).tolist() == []


def test_words_that_look_alike_take_each_others_place() -> None:
    """Each distinct one as often as the others, though Tom stands in nine pairs of ten."""
    side = [["Tom", "table"]] * 90 + [["Ana", "12"], ["Bob,", "37"], ["Bob", "jazz"]]
    copies = SharedWords(shared_words(side, side))
    words = [[word for words in side for word in words][i] for i in copies.positions[0]]
    assert sorted(words) == sorted(word for words in side for word in words)  # all of them are shared
    every = np.repeat(np.arange(len(words)), 300)
    drawn = copies.like(every, random_keys(len(every), 7))
    found = Counter((words[i], words[j]) for i, j in zip(every.tolist(), drawn.tolist(), strict=True))
    groups = [{"Tom", "Ana", "Bob"}, {"table", "jazz"}, {"12", "37"}, {"Bob,"}]
    assert set(found) == {(one, other) for group in groups for one in group for other in group}
    for (one, _), count in found.items():
        alike = next(len(group) for group in groups if one in group)
        assert count / (300 * words.count(one)) == pytest.approx(1 / alike, abs=0.1)
