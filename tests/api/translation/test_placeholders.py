"""Facts in translations: each span of the source is in the output exactly once, whatever the model would write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from regard.api.translator import Translator
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.minimum_risk import MinimumRisk
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Search
from regard.look.trace.tracing import trace_text

DATA = {"placeholders": True, "source_language": "fr", "target_language": "en"}
INFO: dict[str, Any] = {"recipe": {"data": DATA}, "known_names": ["Jane", "Afrique"]}
TEXT = "le chat visite Zanzibar le 3 mars 2025 à 17 h 45 dans la maison 12."
SPANS = ["Zanzibar", "3 March 2025", "17 h 45", "12"]


@pytest.fixture
def carrying(translator_of: Callable[..., Translator]) -> Translator:
    return translator_of(**INFO)


@pytest.mark.parametrize(
    "search",
    [Beam(3), Greedy(), Sample(seed=1), MinimumRisk(3), Beam(5, length_penalty=0.0)],
    ids=["beam", "greedy", "sample", "minimum risk", "beam without length penalty"],
)
def test_each_span_is_written_once(carrying: Translator, search: Search) -> None:
    results = carrying.translate([TEXT, "le chat noir dort", "une pomme à 5 €"], search=search)
    for span in SPANS:
        assert results[0].text.count(span) == 1
    assert not any(span in results[1].text for span in SPANS)
    assert results[2].text.count("5 €") == 1


def test_alternatives_and_recurrent_models_carry_spans(translator_of: Callable[..., Translator]) -> None:
    for kind in ("rnn-attention", "rnn-seq2seq"):
        result = translator_of(kind, **INFO).translate(TEXT, alternatives=3)
        assert all(alternative.text.count(span) == 1 for alternative in result.alternatives for span in SPANS)


def test_a_truncated_translation_still_has_its_spans(carrying: Translator) -> None:
    text = carrying.translate(TEXT, max_tokens=2).text
    assert all(span in text for span in SPANS)


def test_models_without_the_recipe_key_read_as_before(translator_of: Callable[..., Translator]) -> None:
    plain = translator_of()
    source = plain.read(TEXT)
    assert source.carried == {}
    assert source.ids[:-1] == plain.source_tokenizer.encode(TEXT)


def test_the_result_shows_the_spans_in_words_and_tokens(carrying: Translator) -> None:
    result = carrying.translate(TEXT, prefix="the 17 h 45", guard=False)
    assert any("3 mars 2025" in word.text for word in result.source_words)
    assert "▁3 mars 2025" in result.source_tokens
    assert "▁17 h 45" in result.tokens
    assert any("17 h 45" in word.text for word in result.words)
    assert len(result.alignment().source) == len(result.source_words) + 1


def test_a_text_of_nothing_but_facts_is_copied(carrying: Translator) -> None:
    assert carrying.translate("https://exemple.fr 42").text == "https://exemple.fr 42"


def test_a_text_with_more_spans_than_placeholders_is_split(carrying: Translator) -> None:
    numbers = [str(number) for number in range(100, 130)]
    text = carrying.translate(", ".join(f"le chat {number}" for number in numbers)).text
    assert [text.count(number) for number in numbers] == [1] * len(numbers)


def test_scores_and_alignments_of_given_translations_use_the_placeholders(carrying: Translator) -> None:
    source = carrying.read(TEXT)
    target = "the cat, 17 h 45"
    scored = carrying.score(TEXT, target)
    assert len(scored.tokens) == len(carrying.encode_target(target, source)) + 1
    assert len(scored.tokens) < len(carrying.target_tokenizer.encode(target)) + 1
    assert carrying.align(TEXT, target).target[:-1] == ["the", "cat,", "17 h 45"]


def test_a_prefix_with_a_span_is_not_repeated(carrying: Translator) -> None:
    text = carrying.translate(TEXT, prefix="the 12").text
    assert text.startswith("the 12")
    assert text.count("12") == 1


def test_a_trace_carries_spans(carrying: Translator) -> None:
    trace = trace_text(carrying, TEXT)
    assert trace.output is not None
    assert all(span in trace.output for span in SPANS)


def test_words_that_cannot_be_read_and_double_names_are_carried(translator_of: Callable[..., Translator]) -> None:
    plain = translator_of()
    seen = {*plain.source_tokenizer.encode("le chat noir dort dans la maison Jean-Pierre")}
    unseen = [token for token in range(4, 240) if token not in seen]  # bytes
    result = translator_of(**INFO, unseen_pieces=unseen).translate("Jean-Pierre dort, le chat 😍🎶 !")
    assert result.text.count("😍🎶") == 1
    assert result.text.count("Jean-Pierre") == 1


def test_a_placeholder_in_the_input_is_not_taken_for_ours(carrying: Translator) -> None:
    result = carrying.translate("le chat \ufdd0 visite Zanzibar 12")
    assert result.text.count("12") == result.text.count("Zanzibar") == 1
    assert "\ufdd0" not in result.text
