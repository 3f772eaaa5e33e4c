"""Warnings about input in another language."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from regard.api.translation.foreign_input import doubt
from regard.api.translator import Translator
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.logit_rules import MinTokens
from regard.decoding.searches.sample import Sample

FRENCH = "le chat noir dort dans la maison"
FOREIGN = "Где находится ближайшая станция?"


@pytest.fixture
def careful(translator_of: Callable[..., Translator]) -> Translator:
    plain = translator_of()
    letters = {token for text in (FRENCH,) for token in plain.source_tokenizer.encode(text)}
    unseen = [token for token in range(4, plain.source_tokenizer.size) if token not in letters]
    normal = doubt(translator_of(unseen_pieces=unseen).translate(FRENCH))
    return translator_of(unseen_pieces=unseen, max_doubt=normal + 0.1, languages={"source": "fr", "target": "en"})


def test_input_that_cannot_be_read_causes_a_warning_that_quotes_it(careful: Translator) -> None:
    with pytest.warns(UserWarning, match="does not look like French.*Где находится") as caught:
        careful.translate([FRENCH, FOREIGN])
    assert len(caught) == 1


def test_an_improbable_output_causes_a_warning(careful: Translator) -> None:
    careful.info["max_doubt"] -= 0.2
    with pytest.warns(UserWarning, match="does not look like French"):
        careful.translate(FRENCH)


def test_about_a_sentence_in_the_source_language_the_model_is_only_unsure(careful: Translator) -> None:
    careful.info["max_doubt"] -= 9.0
    with pytest.warns(UserWarning, match="the model is unsure about this input.*il ne dort pas") as caught:
        careful.translate("il ne dort pas dans cette maison")
    assert len(caught) == 1


def test_no_warning_without_a_limit_or_without_guard(careful: Translator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        careful.translate(FOREIGN, guard=False)
        careful.translate("42, 43 !")
        del careful.info["max_doubt"]
        careful.translate(FOREIGN)


def test_another_language_is_named_if_the_source_language_is_known(translator_of: Callable[..., Translator]) -> None:
    german, english = "Wo ist der Bahnhof, bitte?", "Where is the station, please?"
    french = translator_of(languages={"source": "fr", "target": "en"})
    with pytest.warns(UserWarning, match="does not look like French but like German.*Bahnhof") as caught:
        french.translate([FRENCH, german])
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="like English"):  # one sentence of several
        french.translate(f"{FRENCH}.\n{english}\n{FRENCH}.")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator_of().translate(german)
        translator_of(languages={"source": "xx", "target": "en"}).translate(german)


def test_a_text_that_is_only_copied_causes_a_warning_too(translator_of: Callable[..., Translator]) -> None:
    unseen = list(range(4, 240))
    data = {"placeholders": True}
    careful = translator_of(unseen_pieces=unseen, max_doubt=9.0, recipe={"data": data}, languages={"source": "fr"})
    with pytest.warns(UserWarning, match="does not look like French"):
        assert careful.translate(FOREIGN).text == FOREIGN


def test_texts_that_are_not_the_most_probable_say_nothing_about_their_input(careful: Translator) -> None:
    careful.info["max_doubt"] -= 0.2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        careful.translate(FRENCH, search=Sample(seed=1))
        careful.translate(FRENCH, prefix="a cat")
        careful.translate(FRENCH, search=Beam(2, rules=(MinTokens(9),)))
