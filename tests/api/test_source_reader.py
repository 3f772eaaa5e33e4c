"""What the reader changes in a sentence before it is cut into pieces: nothing that training has met."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard.text.demo_corpus import demo_pairs

MODEL = Path(__file__).parents[1] / "data" / "demo-fr-en"


@pytest.fixture(scope="module")
def translator() -> regard.Translator:
    return regard.load(MODEL)


def test_sentences_of_the_kind_it_learnt_from_are_read_as_they_are(translator: regard.Translator) -> None:
    """Most capitals have no piece of their own, but stand in pieces that training met."""
    sentences = [pair.source for pair in demo_pairs("test", 300)]
    assert sum(not sentence.isascii() for sentence in sentences) > 100
    assert [translator.reader._readable(sentence) for sentence in sentences] == sentences


def test_capitals_and_symbols_that_it_never_met(translator: regard.Translator) -> None:
    assert translator.reader._readable("ÊTRE là") == "être là"
    assert translator.reader._readable("là😀") == "là 😀 "


def test_accents_elsewhere_do_not_change_a_translation(translator: regard.Translator) -> None:
    assert translator.translate("Il y aura un taxi américain dans la forêt.").text.startswith("There will be")
