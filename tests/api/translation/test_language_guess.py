"""The guess of a sentence's language from its frequent words."""

from __future__ import annotations

import pytest

from regard.api.translation.language_guess import LANGUAGES_OF_WORD, is_clearly, other_language

SENTENCES = {
    "en": ["Where did you put the keys?", "It's not what I wanted to hear.", "Don't you think she's right?"],
    "fr": ["Où est-ce que tu as mis les clés ?", "Ce n'est pas ce que je voulais.", "L’eau est trop froide pour nous."],
    "de": ["Wo hast du die Schlüssel hingelegt?", "Das ist nicht, was ich hören wollte.", "Das Wasser ist zu kalt."],
    "es": ["¿Dónde has puesto las llaves?", "No es lo que quería oír.", "El agua está muy fría para nosotros."],
    "it": ["Dove hai messo le chiavi?", "Non è quello che volevo sentire.", "L'acqua è troppo fredda per noi."],
    "pt": ["Onde você deixou as chaves?", "Não é o que eu queria ouvir.", "A água está muito fria."],
    "nl": ["Waar heb je de sleutels gelegd?", "Dat is niet wat ik wilde horen.", "Het water is te koud voor ons."],
}
PAIRS = [(language, sentence) for language, sentences in SENTENCES.items() for sentence in sentences]


@pytest.mark.parametrize(("language", "sentence"), PAIRS)
def test_a_sentence_is_recognized_where_another_language_was_expected(language: str, sentence: str) -> None:
    others = [code for code in SENTENCES if code != language]
    guesses = [other_language(sentence, expected) for expected in others]
    assert guesses.count(language) >= len(others) - 1  # a close relative may share too many words
    assert set(guesses) <= {language, None}
    assert other_language(sentence, language) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42 + 8 = 50",
        "Jane Smith",
        "La Paz",  # names
        "« The Lord of the Rings » est un livre que j'ai lu quand j'étais petit.",  # a quotation
        "Écris à who.is.the.best@example.org pour en savoir plus.",  # an address
        "le film Das Boot",
    ],
)
def test_names_quotations_and_addresses_are_no_other_language(text: str) -> None:
    assert other_language(text, "fr") is None


def test_a_word_counts_once_for_a_language() -> None:
    assert [word for word, codes in LANGUAGES_OF_WORD.items() if len({*codes}) < len(codes)] == []


def test_a_sentence_is_clearly_in_a_language_if_no_other_has_as_many_words() -> None:
    assert is_clearly("Il ne dort pas dans cette maison.", "fr")
    assert not is_clearly("Il ne dort pas dans cette maison.", "it")
    assert not is_clearly("la casa", "es")  # Italian, too
    assert not is_clearly("print(x)", "fr")
    assert not is_clearly("Il ne dort pas dans cette maison.", None)


@pytest.mark.parametrize("expected", [None, "xx", "Klingon"])
def test_without_a_known_language_there_is_nothing_to_compare_with(expected: str | None) -> None:
    assert other_language("Where did you put the keys?", expected) is None
