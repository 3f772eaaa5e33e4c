"""Words in all their segmentations: what is drawn, how often, and what happens at the limits."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from itertools import accumulate

import numpy as np
import pytest

from regard.text.random_streams import mixed_fractions, random_keys
from regard.text.tokenizers import word_table
from regard.text.tokenizers.segmentations import Choices, Segmentations
from regard.text.tokenizers.special_tokens import UNKNOWN
from regard.text.tokenizers.word_table import WordTable, table_arrays

WAYS: dict[str, Choices] = {
    "a": {(10,): 1.0},
    "bc": {(20,): 3.0, (21, 22): 1.0},
    "never": {(30,): 0.0, (31, 32): 0.5, (33, 34, 35): 1.5},  # the usual way has no weight
    "long": {(40, 41): 1.0, (42, 43, 44, 45, 46, 47): 9.0},
}


class Ways(Segmentations):
    """The choices listed above, and a count of who asked for them."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def usual(self, word: str) -> Choices:
        return {next(iter(WAYS[word])): 1.0}

    def choices(self, word: str) -> Choices:
        self.asked.append(word)
        return WAYS[word]


SENTENCES = [["a", "bc"], [], ["never", "long", "a"], ["bc"], ["long", "bc", "bc", "never"]] * 40


def drawn_by_hand(sentences: list[list[str]], keys: np.ndarray) -> list[list[int]]:
    """Word by word, with a search through its own probabilities."""
    out = []
    for sentence, key in zip(sentences, keys, strict=True):
        tokens: list[int] = []
        for word, fraction in zip(sentence, mixed_fractions(key[None], np.array([len(sentence)])), strict=True):
            ways = WAYS[word]
            limits = [limit / sum(ways.values()) for limit in accumulate(ways.values())]
            tokens += list(ways)[bisect(limits, fraction)]
        out.append(tokens)
    return out


@pytest.mark.parametrize("block", [1, 7, 65_536])
def test_as_drawn_by_hand(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "BLOCK_SENTENCES", block)
    table, keys = WordTable(table_arrays(SENTENCES, Ways())), random_keys(len(SENTENCES), 4)
    assert len(table) == len(SENTENCES)
    assert list(table.draw(keys)) == drawn_by_hand(SENTENCES, keys)


def test_no_sentences() -> None:
    table = WordTable(table_arrays([], Ways()))
    assert list(table.draw(random_keys(0, 1))) == []
    assert table.usual_lengths().tolist() == []


def test_choices_come_as_often_as_they_weigh() -> None:
    table = WordTable(table_arrays([["never", "bc"]] * 8000, Ways()))
    counts = Counter(map(tuple, table.draw(random_keys(8000, 0))))
    for first, share in (((31, 32), 0.25), ((33, 34, 35), 0.75)):
        for second, other in (((20,), 0.75), ((21, 22), 0.25)):  # words are drawn apart from each other
            assert counts[first + second] / 8000 == pytest.approx(share * other, abs=0.02)
    assert sum(counts.values()) == 8000
    assert len(counts) == 4


def test_a_sentence_too_long_stays_as_usual() -> None:
    keys = random_keys(len(SENTENCES), 4)
    table = WordTable(table_arrays(SENTENCES, Ways()))
    usual = [[token for word in sentence for token in next(iter(WAYS[word]))] for sentence in SENTENCES]
    assert table.usual_lengths().tolist() == list(map(len, usual))
    free, limited = drawn_by_hand(SENTENCES, keys), list(table.draw(keys, limit=7))
    assert limited == [one if len(one) <= 7 else other for one, other in zip(free, usual, strict=True)]
    assert any(len(one) > 7 for one in free)
    assert any(len(one) == 7 for one in free)


@pytest.mark.parametrize("block", [2, 65_536])
def test_hidden_words_are_unknown(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "BLOCK_SENTENCES", block)
    table = WordTable(table_arrays([["a", "bc"], ["a"], ["bc", "a", "a"], ["a"]], Ways(), max_words=0))
    hidden = np.array([1, 2, 4])
    assert list(table.draw(random_keys(4, 0), hidden=hidden)) == [[10, UNKNOWN], [UNKNOWN], [20, UNKNOWN, 10], [10]]
    assert list(table.draw(random_keys(4, 0), hidden=hidden[:0])) == [[10, 20], [10], [20, 10, 10], [10]]


def test_variants_stand_beside_their_words() -> None:
    """And can be drawn in place of them; each kind of word is listed once."""
    swap = {"a": "bc", "bc": "bc", "long": "never"}
    arrays = table_arrays([["a", "long"], ["bc"]], Ways(), max_words=0, variants=[swap.__getitem__, str])
    table = WordTable(arrays)
    assert arrays["variants"].tolist() == [[0, 1, 2], [2, 3, 2], [0, 1, 2]]
    assert len(arrays["firsts"]) == 5
    other = table.variants[1, table.words]
    assert list(table.draw(random_keys(2, 0), words=other)) == [[20, 30], [20]]
    assert table.usual_lengths(other).tolist() == [2, 1]
    assert list(table.draw(random_keys(2, 0))) == [[10, 40, 41], [20]]


def test_only_the_most_frequent_words_have_several_choices() -> None:
    """Which bounds the memory, and the time to list them."""
    ways = Ways()
    sentences = [["bc", "never"], ["long"], ["never", "bc"], ["long", "a"], ["never", "long"]]  # 2, 3, 3 and 1 times
    table = WordTable(table_arrays(sentences, ways, max_words=2))
    assert ways.asked == ["never", "long"]
    drawn = [token for seed in range(40) for row in table.draw(random_keys(5, seed)) for token in row]
    assert {20, 10} < set(drawn)
    assert 21 not in drawn
    assert {31, 33, 40, 42} < set(drawn)


def test_words_that_are_equally_frequent_are_taken_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same order in every process and on every machine."""
    words = [f"w{i}" for i in range(300)]
    for word in words:
        monkeypatch.setitem(WAYS, word, {(10,): 1.0})
    ways = Ways()
    table_arrays([words, words[1::2]], ways, max_words=200)  # every other one twice
    assert ways.asked == [word for i, word in enumerate(words) if i % 2 or i < 100]


def test_choices_end_where_memory_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "MAX_TABLE_TOKENS", 5)
    ways = Ways()
    table = WordTable(table_arrays([["bc", "never", "long"]], ways))  # 3 and 6 pieces
    assert ways.asked == ["bc", "never"]
    assert {row[-1] for seed in range(20) for row in table.draw(random_keys(1, seed))} == {41}


def test_a_random_number_on_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one choice ends the next begins: 0 is the first choice that has a weight, and never a word before."""
    sentences = [["a", "bc", "never", "long"]]
    table = WordTable(table_arrays(sentences, Ways()))
    for fraction, expected in ((0.0, [10, 20, 31, 32, 40, 41]), (0.75, [10, 21, 22, 33, 34, 35, *range(42, 48)])):
        monkeypatch.setattr(word_table, "mixed_fractions", lambda keys, counts, at=fraction: np.full(counts.sum(), at))
        assert list(table.draw(random_keys(1, 0))) == [expected]
