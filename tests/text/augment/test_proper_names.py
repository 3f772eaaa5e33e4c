"""Which words of a sentence are names that training hardly met."""

from __future__ import annotations

import pytest

from regard.text.augment.proper_names import SegmentedWord, core, find_names, frequent_names

KNOWN = {"Paris", "France"}


def names(text: str, *, spelled: str = "", plain: str = "") -> list[str]:
    """The names in a text; `spelled` are words of many pieces, `plain` ones that are known without their capital."""
    words = text.split()
    known = [SegmentedWord(word, 5 if word in spelled.split() else 1, word in plain.split()) for word in words]
    return [" ".join(words[start:end]) for start, end in find_names(known, KNOWN)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Je vais à Bordeaux.", ["Bordeaux."]),
        ("Je vais à Paris.", []),
        ("Bordeaux est loin.", []),  # the first word has a capital anyway
        ("Je dors. Bordeaux dort aussi.", []),
        ("Il a dit : Viens !", []),
        ("Je vis à Lille avec Zoé Lefèvre depuis mai.", ["Lille", "Zoé Lefèvre"]),
        ("Il va à Lille. Zoé dort.", ["Lille."]),  # a name ends where a sentence ends
        ("Mon code est Xk42qz9.", ["Xk42qz9."]),
        ("Le train part à 18h45.", []),
        ("Appelle le 06 12 34 56 78 ce soir.", ["06 12 34 56 78"]),
        ("Il a 37 ans et 2 chats.", []),
        ("La SNCF, la RATP et moi", ["SNCF,", "RATP"]),
    ],
)
def test_names_are_found(text: str, found: list[str]) -> None:
    assert names(text) == found


def test_a_first_word_that_is_spelled_out_belongs_to_the_name_after_it() -> None:
    assert names("Emmanuel Macron parle.", spelled="Emmanuel") == ["Emmanuel Macron"]
    assert names("Monsieur Macron parle.") == ["Macron"]
    assert names("J'aime Lille.", spelled="J'aime") == ["Lille."]


def test_a_word_that_is_known_without_its_capital_is_no_name() -> None:
    assert names("Le Président Macron parle.", plain="Président") == ["Macron"]


def test_marks_and_elided_words_do_not_belong_to_a_word() -> None:
    assert [core(word) for word in ("l'Afrique,", "« Zola »", "d’Émilie.", "O'Neil", "qu'il")] == [
        "Afrique",
        "Zola",
        "Émilie",
        "O'Neil",
        "il",
    ]


def test_names_are_met_inside_sentences_only() -> None:
    texts = ["Paris dort.", "Il aime Paris.", "À Paris, puis en France.", "Vive la France !", "Viens. Paris dort."]
    assert frequent_names(texts, 2) == ["France", "Paris"]
    assert frequent_names(texts, 3) == []
