"""Words as people type them, and words that do not exist."""

from __future__ import annotations

from itertools import pairwise

import pytest

from regard.text.augment.word_variants import HABITS, Invention, bare_letters, curly_quotes, shape

WORDS = ["Tom", "Mary,", "Boston", "table", "8:30", "2013", "Saint-Malo"]


@pytest.mark.parametrize(
    ("word", "typed"),
    [
        ("Où", ("où", "ou", "OÙ", "Où")),
        ("L'œuvre", ("l'œuvre", "l'oeuvre", "L'ŒUVRE", "L’œuvre")),
        ("Ça", ("ça", "ca", "ÇA", "Ça")),
        ("12", ("12",) * 4),
    ],
)
def test_habits(word: str, typed: tuple[str, ...]) -> None:
    assert tuple(habit(word) for habit in HABITS) == typed
    assert bare_letters(word).isascii()
    assert curly_quotes(word).replace("’", "'") == word


def test_shapes() -> None:
    shapes = [shape(word) for word in WORDS]
    assert shapes == ["A", "A,", "A", "a", "0:00", "0000", "A-A"]


def test_invented_words_look_like_the_words() -> None:
    for word in WORDS:
        made = {Invention(WORDS, number)(word) for number in range(16)}
        assert len(made) > 8
        for one in made:
            assert [c for c in one if not c.isalnum()] == [c for c in word if not c.isalnum()]
            if word[0].isdigit():
                assert one[0].isdigit() and len(one) == len(word)
            elif not one[0].isdigit():
                assert one[0].isupper() == word[0].isupper()
        numbers = [one for one in made if one[0].isdigit()]
        assert len(numbers) == (len(made) if word[0].isdigit() else 4), made
    pairs = {(a, b) for word in WORDS for a, b in pairwise(word.lower())}
    for number in (1, 2, 3, 5, 6, 7):
        one = Invention(WORDS, number)("Boston").lower()
        assert all((a, b) in pairs or a in "myneto" for a, b in pairwise(one))  # others end no word


def test_inventions_are_functions_of_word_number_and_words() -> None:
    """So both sides of a pair, each with a table of its own, get the same."""
    one = Invention(WORDS, 3)
    assert [Invention(WORDS[::-1], 3)(word) for word in WORDS] == [one(word) for word in WORDS]
    assert one("Paris") == "Paris"  # not one of the words
    assert [Invention(WORDS, 4)(word) for word in WORDS] != [one(word) for word in WORDS]
    assert (one("Tom"), one("8:30")) == ("Salo", "5:26")  # the same on every machine and in every release
