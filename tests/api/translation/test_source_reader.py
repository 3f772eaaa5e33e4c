"""What the reader changes in a sentence before it is cut into pieces: nothing that training has met."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard.api.translation.copy_unknown_words import fit_copies
from regard.api.translation.source_text import SourceReader
from regard.demo.corpus import demo_pairs
from regard.text.text_frame import TextFrame
from regard.text.tokenizers.special_tokens import END, START, UNKNOWN

MODEL = Path(__file__).parents[2] / "data" / "demo-fr-en"


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


SENTENCES = (
    *("Elle visite la forêt.", "Est-ce que tu dors ?", "Le « chat » -- dort-il ?", "a\u202fb", "TRÈS bien", "É ?"),
    *("l'Afrique", "Paul dort", "il a 3 chats", "x.y", "à\ttoi", "e\u0301te\u0301", "😀 là", "-v oui", "3 mars", ""),
    *("là…", "Jean-Pierre dort", "œuf", "\ue000 là", "un_deux", "(oui)", "mord-\u202fil"),
)


@pytest.mark.parametrize("model", ["demo", "fr-en", "en-fr"])
def test_plain_sentences_are_read_like_any_others(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most sentences need no search for names, numbers and the like; the short way and the long way agree."""
    translator = regard.load(MODEL if model == "demo" else model)
    texts = [*SENTENCES, *(f"{a} {b}" for a in SENTENCES for b in SENTENCES[::4])]

    def read(reader: SourceReader) -> list[object]:
        sources = [reader.read(text) for text in texts if reader.fits(text)]
        return [(x.text, x.ids, x.has_letters, x.words, x.units, x.carried, x.originals) for x in sources]

    frame = TextFrame(before=(START,), after=(END,))
    for reader in (translator.reader, SourceReader(translator.source_tokenizer, info={}, longest=9, frame=frame)):
        assert any(map(reader._is_plain, texts)) and not all(map(reader._is_plain, texts))
        want = read(reader)
        with monkeypatch.context() as patch:
            patch.setattr(reader, "_is_plain", lambda text: False)
            assert read(reader) == want


@pytest.fixture(scope="module")
def naming(translator: regard.Translator) -> SourceReader:
    """A reader that knows one name."""
    info = {"known_names": ["Afrique"], "unseen_pieces": sorted(translator.reader.unseen)}
    return SourceReader(translator.source_tokenizer, info=info, longest=None)


def test_a_name_of_several_words_is_one_unknown(naming: SourceReader) -> None:
    read = naming.read("Elle visite Clermont Ferrand en septembre.")
    assert read.ids.count(UNKNOWN) == 1
    (name,) = [word for word in read.words if UNKNOWN in read.ids[word.start : word.end]]
    assert name.text == "Clermont Ferrand" and name.end - name.start == 1
    assert [word.text for word in read.words] == ["Elle", "visite", "Clermont Ferrand", "en", "septembre."]
    ends = [0, *(word.end for word in read.words)]
    assert [word.start for word in read.words] == ends[:-1] and ends[-1] == len(read.ids) - 1  # nothing is lost


def test_what_is_elided_before_a_name_is_read(naming: SourceReader) -> None:
    read = naming.read("Le chat d'Antoine dort.")
    assert [word.text for word in read.words] == ["Le", "chat", "d'", "Antoine", "dort."]
    assert read.ids.count(UNKNOWN) == 1
    assert UNKNOWN not in naming.read("Elle visite l'Afrique.").ids  # met often enough


def test_who_shouts_has_no_names(naming: SourceReader, translator: regard.Translator) -> None:
    assert naming.read("LE CHAT DORT").ids == translator.reader.read("Le chat dort").ids
    assert UNKNOWN in naming.read("Elle visite Tantin.").ids
    assert UNKNOWN not in translator.reader.read("Elle visite Tantin.").ids  # only where the model says so


def test_a_sentence_that_goes_on_keeps_no_full_stop() -> None:
    tokens, pieces = [UNKNOWN, 9, 9], ["<unk>", "▁is", "</s>"]
    assert fit_copies(["Émilie."], tokens, pieces) == ["Émilie"]
    assert fit_copies(["Émilie."], [UNKNOWN, 9, 9], ["<unk>", "▁It", "▁is"]) == ["Émilie."]
    assert fit_copies(["Émilie."], [UNKNOWN, 9], ["<unk>", "</s>"]) == ["Émilie."]
