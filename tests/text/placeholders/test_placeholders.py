"""Placeholders as a text transformation: what they hide, and that nothing is lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from regard.text.files.corpus import make_corpus
from regard.text.placeholders.placeholders import Hidden, hide, hide_carried, hide_corpus, hide_pair, restore
from regard.text.placeholders.spans import find_spans
from regard.text.tokenizers.special_tokens import PLACEHOLDERS

FR_EN = ("fr", "en")
FACTS = st.sampled_from(
    ["17 h 45", "-15 °C", "1 234,56 €", "https://a.fr/x?y=1", "a.b@c.org", "x_1.pdf", "3e", "14 mai 2024", "f(x)", "½"]
)
TEXTS = st.lists(st.one_of(FACTS, st.text(max_size=8), st.text("0123456789.,:/-@ h", max_size=8))).map(" ".join)


def hidden(text: str, language: str | None = None) -> Hidden:
    return hide(text, find_spans(text, language))


@given(TEXTS, st.sampled_from(["fr", "en", "de", None]))
def test_restoring_gives_any_text_back(text: str, language: str | None) -> None:
    result = hidden(text, language)
    if any(symbol in text for symbol in PLACEHOLDERS):
        assert result == (text, {}, {})
    else:
        assert restore(result.text, result.carried) == text
        assert all(result.text.count(symbol) == 1 for symbol in result.carried)


@given(TEXTS, st.sampled_from(["fr", "en", None]))
def test_spans_are_in_order_and_do_not_overlap(text: str, language: str | None) -> None:
    ends = 0
    for span in find_spans(text, language):
        assert ends <= span.start < span.end <= len(text)
        ends = span.end


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Le train part à 17 h 45 du quai 9.", ["17 h 45", "9"]),
        ("De 9h à 17h30, ou 10:30.", ["9h", "17h30", "10:30"]),
        ("Il fait -15 degrés, soit -15 °C (5 °F).", ["-15", "-15 °C", "5 °F"]),
        ("La facture s'élève à 1 234,56 €.", ["1 234,56 €"]),
        ("C'est 99% ou 3,5 % de 12 km/h.", ["99%", "3,5 %", "12 km/h"]),
        ("En 2010 m'a-t-on dit, 300 personnes", ["2010", "300"]),
        ("Mon numéro est le 06 12 34 56 78.", ["06 12 34 56 78"]),
        ("Né le 23 novembre 1987, le 1er mai ou le 3e jour", ["23 novembre 1987", "1er mai", "3e"]),
        ("Voir https://www.exemple.fr/produits?id=42.", ["https://www.exemple.fr/produits?id=42"]),
        ("Écris à contact@exemple.fr, ou sur exemple.org !", ["contact@exemple.fr", "exemple.org"]),
        ("Ouvre rapport_final_v2.pdf et ~/notes.txt.", ["rapport_final_v2.pdf", "~/notes.txt"]),
        ("L'A380, COVID-19, v2.1.0 et max_length", ["A380", "COVID-19", "v2.1.0", "max_length"]),
        ('La fonction print("bonjour") affiche', ['print("bonjour")']),
        ("Un mot, c'est tout...et voilà - rien d'autre (non).", []),
    ],
)
def test_french_spans(text: str, spans: list[str]) -> None:
    assert [span.text(text) for span in find_spans(text, "fr")] == spans


def test_dates_and_ordinals_are_localised_and_nothing_else() -> None:
    text = "Le 1er mai 2024, le 3e, à 17 h 45 : 19,99 €."
    carried = hide(text, find_spans(text, "fr"), target="en").carried
    assert list(carried.values()) == ["1 May 2024", "3rd", "17 h 45", "19,99 €"]


@pytest.mark.parametrize(
    ("source", "target", "count"),
    [
        ("Ça coûte 1,5 €.", "It costs €1.5.", 1),
        ("Je pars à 14 h 30.", "I leave at 2:30 p.m.", 1),
        ("Né le 20 octobre 2013", "Born on October 20th, 2013", 1),
        ("10 000 yens en 5 ans", "10,000 yen in 5 years", 2),
        ("Elle écrivit 5 romans en 5 ans.", "She wrote 5 novels in 5 years.", 2),
        ("Il a 3 ans de plus qu'elle.", "He's three years older than she is.", 1),
        ("L'air a 3 parts", "Air has 4 parts", 0),
        ("À 6 heures", "At 6:00", 0),
    ],
)
def test_a_pair_is_hidden_on_both_sides_or_not_at_all(source: str, target: str, count: int) -> None:
    ours, theirs = hide_pair(source, target, FR_EN, random.Random(0))
    symbols = [symbol for symbol in PLACEHOLDERS if symbol in ours]
    assert len(symbols) == count
    assert all(theirs.count(symbol) == ours.count(symbol) == 1 for symbol in symbols)
    if not count:
        assert (ours, theirs) == (source, target)


@given(TEXTS, TEXTS)
def test_both_sides_of_any_pair_get_the_same_placeholders(source: str, target: str) -> None:
    ours, theirs = hide_pair(source, target, FR_EN, random.Random(1))
    if ours != source:
        assert sorted(c for c in ours if c in PLACEHOLDERS) == sorted(c for c in theirs if c in PLACEHOLDERS)
    else:
        assert theirs == target


def test_number_words_and_names_are_hidden_in_some_pairs_only() -> None:
    pair = "Tom a trente ans et deux cents amis.", "Tom is thirty and has two hundred friends."
    pairs = {hide_pair(*pair, FR_EN, random.Random(i)) for i in range(200)}
    assert pair in pairs
    assert any("Tom" not in source and "trente" not in source for source, _ in pairs)
    assert all("deux cents" in source for source, _ in pairs)


def test_a_corpus_is_hidden_as_a_function_of_the_seed() -> None:
    corpus = make_corpus(["Page 3", "Bonjour"] * 20, ["Page 3", "Hello"] * 20, name="test")
    once, again = (hide_corpus(corpus, FR_EN, 1) for _ in range(2))
    assert (once.source, once.target) == (again.source, again.target)
    assert len({*once.source}) > 2  # different placeholders
    assert "Bonjour" in once.source


def test_carried_texts_are_found_in_a_given_translation() -> None:
    carried = {PLACEHOLDERS[0]: "5", PLACEHOLDERS[1]: "15"}
    assert hide_carried("15 or 5, not 25.", carried) == f"{PLACEHOLDERS[1]} or {PLACEHOLDERS[0]}, not 25."
