"""The translator against the plain model: same tokens in, same tokens out, the same numbers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from regard.api.results import Translation
from regard.api.translation import sentence_search
from regard.api.translator import Translator
from regard.decoding import forced
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens, NoRepeat
from regard.decoding.searches.minimum_risk import MinimumRisk
from regard.decoding.searches.repetition import find_repetition
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Hypothesis
from regard.errors import DataError, ModelError, UsageError
from regard.text.batches.pairs import PairData
from regard.text.files.corpus import make_corpus
from regard.text.tokenizers.special_tokens import END, START, UNKNOWN
from regard.text.tokenizers.subwords import SubwordTokenizer

Make = Callable[..., Translator]

FRENCH = [
    "Jane visite l'Afrique en septembre.",
    "le chat noir dort dans la maison",
    "la petite fille mange une pomme rouge",
]
ENGLISH = ["Jane visits Africa in September.", "the black cat sleeps in the house", "the little girl eats a red apple"]


@torch.no_grad()
def greedy_by_hand(translator: Translator, text: str, steps: int) -> list[int]:
    """The whole model anew for each token."""
    source = torch.tensor([[*translator.source_tokenizer.encode(text), END]])
    target = [START]
    while len(target) <= steps:
        logits = translator.model(source, torch.tensor([target]))[0, -1]
        logits[[0, START]] = -math.inf
        target.append(int(logits.argmax()))
        if target[-1] == END:
            break
    return target[1:]


@torch.no_grad()
def logps_by_hand(translator: Translator, text: str, ids: Sequence[int]) -> list[float]:
    source = torch.tensor([[*translator.source_tokenizer.encode(text), END]])
    logits = translator.model(source, torch.tensor([[START, *ids[:-1]]]))[0]
    return [float(row[token]) for row, token in zip(F.log_softmax(logits, -1), ids, strict=True)]


def test_greedy_is_the_model_step_by_step(translator: Translator) -> None:
    for text in FRENCH[:3]:
        found = translator.translate(text, beam=1, max_tokens=9, guard=False)
        wanted = greedy_by_hand(translator, text, 9)
        assert found.ids == wanted
        assert found.text == translator.target_tokenizer.decode(wanted)
        assert found.score == pytest.approx(sum(logps_by_hand(translator, text, wanted)), abs=1e-4)
        assert found.source_tokens == [*translator.source_tokenizer.pieces(found.source_ids[:-1]), "</s>"]
        assert found.finished == (wanted[-1] == END)


def test_the_source_is_what_training_reads(translator_of: Make) -> None:
    """A model must meet the same tokens in use as in training."""
    translator = translator_of()
    corpus = make_corpus(FRENCH, ENGLISH, name="here")
    data = PairData(corpus, translator.source_tokenizer, translator.target_tokenizer, batch_tokens=1000)
    for i, text in enumerate(FRENCH):
        assert translator.read(text).ids == data.collate([i], 0).source[0].tolist()


def test_a_text_gives_one_and_a_list_a_list(translator_of: Make) -> None:
    translator = translator_of()
    single = translator.translate(FRENCH[1], max_tokens=6)
    (one,) = translator.translate([FRENCH[1]], max_tokens=6)
    assert single.ids == one.ids and translator.translate([]) == []
    assert str(single) == single.text
    assert repr(single) == f"Translation({single.text!r}, score={single.score:.2f})"


def test_empty_texts_stay_empty_and_in_their_place(translator: Translator) -> None:
    found = translator.translate(["", FRENCH[0], "   ", FRENCH[1]], beam=1, max_tokens=5)
    assert [bool(one.ids) for one in found] == [False, True, False, True]
    assert (found[0].text, found[0].tokens, found[0].score, found[0].alternatives) == ("", [], 0.0, [found[0]])
    assert found[3].ids == translator.translate(FRENCH[1], beam=1, max_tokens=5).ids
    assert found[0].attention.cross is None
    with pytest.raises(UsageError, match="empty translation has no alignment"):
        found[0].alignment()


def test_alternatives_are_best_first(translator_of: Make) -> None:
    found = translator_of().translate(FRENCH[2], alternatives=4, max_tokens=6)
    assert len(found.alternatives) == 4 and found.alternatives[0] is found
    assert len({tuple(one.ids) for one in found.alternatives}) == 4
    ranking = [one.score / len(one.ids) for one in found.alternatives if one.finished]
    assert ranking == sorted(ranking, reverse=True)


def test_more_alternatives_than_the_default_beam_widen_it(translator_of: Make) -> None:
    assert len(translator_of().translate(FRENCH[2], alternatives=7, max_tokens=6).alternatives) == 7


def test_beam_five_is_the_default(translator_of: Make) -> None:
    translator = translator_of()
    assert (
        translator.translate(FRENCH[2], max_tokens=6).ids == translator.translate(FRENCH[2], beam=5, max_tokens=6).ids
    )
    by_search = translator.translate(FRENCH[2], search=Beam(5, length_penalty=1.0), max_tokens=6)
    assert translator.translate(FRENCH[2], max_tokens=6).ids == by_search.ids


def test_samples(translator_of: Make) -> None:
    translator = translator_of()
    found = [
        translator.translate(FRENCH[0], search=Sample(temperature=3.0, seed=seed), max_tokens=8) for seed in (1, 1, 2)
    ]
    assert found[0].ids == found[1].ids != found[2].ids


def test_samples_depend_on_the_number_of_a_text_and_not_on_its_neighbours(translator_of: Make) -> None:
    translator, search = translator_of(), Sample(temperature=3.0, seed=1)
    texts = [*FRENCH, f"{FRENCH[0]}\n{FRENCH[1]}"]  # the last one in two parts
    together = translator.translate(texts, search=search, max_tokens=8)
    for i in (3, 0, len(texts) - 1):
        (alone,) = translator.translate([texts[i]], search=search, max_tokens=8, numbers=[i])
        assert alone.ids == together[i].ids
    assert translator.translate([texts[0]], search=search, max_tokens=8, numbers=[5])[0].ids != together[0].ids
    with pytest.raises(UsageError, match="all be different"):
        translator.translate(texts[:2], numbers=[1, 1])


def test_a_prefix_is_kept_and_continued(translator: Translator) -> None:
    found = translator.translate(FRENCH[0], prefix="Jane visits", beam=1, max_tokens=4)
    start = translator.target_tokenizer.encode("Jane visits")
    assert found.ids[: len(start)] == start and len(found.ids) <= len(start) + 4
    assert found.text.startswith("Jane visits")
    source = torch.tensor([found.source_ids])
    with torch.no_grad():
        logits = translator.model(source, torch.tensor([[START, *start]]))[0, -1]
    logits[[0, START]] = -math.inf
    assert found.ids[len(start)] == int(logits.argmax())


def test_the_length_is_bounded_by_the_source(translator_of: Make) -> None:
    translator = translator_of()
    found = translator.translate(FRENCH[0], beam=1)  # random weights hardly ever write END
    assert not found.finished and len(found.ids) == 2 * len(found.source_ids) + 20


def test_score_is_the_log_probability(translator: Translator) -> None:
    found = translator.score(FRENCH, ENGLISH)
    for source, target, one in zip(FRENCH, ENGLISH, found, strict=True):
        ids = [*translator.target_tokenizer.encode(target), END]
        wanted = logps_by_hand(translator, source, ids)
        assert one.logps == pytest.approx(wanted, abs=1e-4)
        assert one.tokens == translator.target_tokenizer.pieces(ids)
        assert one.score == pytest.approx(sum(wanted), abs=1e-3)
        assert one.perplexity == pytest.approx(math.exp(-sum(wanted) / len(wanted)), rel=1e-4)
        assert one.likelihood.bits_per_character == pytest.approx(-sum(wanted) / math.log(2) / len(target), rel=1e-4)
    single = translator.score(FRENCH[0], ENGLISH[0])
    assert single.logps == pytest.approx(found[0].logps, abs=1e-3)


def test_a_model_in_training_translates_without_dropout_and_stays_in_training(translator_of: Make) -> None:
    translator = translator_of()
    wanted = translator.translate(FRENCH[0], beam=1, max_tokens=8).ids
    translator.model.train()
    found = translator.translate(FRENCH[0], beam=1, max_tokens=8)
    assert found.ids == wanted and translator.model.training
    rows = found.attention.cross.sum(-1)
    torch.testing.assert_close(rows, torch.ones_like(rows))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 2, "search": Greedy()}, "beam or search, not both"),
        ({"beam": 0}, "beam must be at least 1, got 0"),
        ({"alternatives": 0}, "alternatives must be at least 1"),
        ({"beam": 1, "alternatives": 2}, "greedy search finds one text"),
        ({"beam": 2, "alternatives": 3}, "cannot find alternatives=3"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
    ],
)
def test_wrong_options(translator_of: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        translator_of().translate(FRENCH[0], **options)


def test_score_needs_pairs(translator_of: Make) -> None:
    with pytest.raises(UsageError, match="as many targets as sources, got 2 and 1"):
        translator_of().score(FRENCH[:2], ENGLISH[:1])
    with pytest.raises(UsageError, match="two texts or two lists"):
        translator_of().score(FRENCH[0], ENGLISH[:1])


def test_learned_positions_end(translator_of: Make) -> None:
    translator = translator_of("learned")
    found = translator.translate(FRENCH[1], beam=1)
    assert len(found.ids) == 24  # of 2 n + 20
    assert len(translator.translate(FRENCH[1], prefix="the black cat", beam=1).ids) == 24
    with pytest.raises(DataError, match=r"this model has positions for 24 only: split the sentence \('le chat le chat"):
        translator.translate("le chat " * 20, guard=False)
    length, full = len(translator.source_tokenizer.encode("le " * 23)), translator.read("le " * 23)
    assert length == 23 and len(full.ids) == 24  # with the end token the places are taken
    translator.translate("le " * 23, beam=1)
    with pytest.raises(DataError, match="a sentence has 24 tokens"):
        translator.read("le " * 24)


def test_long_sentences_are_warned_of(translator_of: Make) -> None:
    translator = translator_of(recipe={"data": {"max_length": 12}})
    length = len(translator.source_tokenizer.encode("le chat " * 8))
    with pytest.warns(UserWarning, match=f"a sentence has {length} tokens, but the model was trained on at most 12"):
        translator.translate("le chat " * 8, beam=1, max_tokens=3, guard=False)
    translator.translate("le chat", beam=1, max_tokens=3)  # warnings of ours are errors in the tests


def words_again(found: Translation) -> int:
    return find_repetition([word.text for word in found.words]).copies


def test_a_text_that_goes_in_circles_is_searched_anew(translator_of: Make) -> None:
    """But not where the source repeats itself as often, and not without the guard."""
    translator = translator_of()
    again, other = translator.target_tokenizer.encode("the house")[:2]
    likely = torch.zeros(translator.target_tokenizer.size)
    likely[again], likely[other], likely[END] = 9.0, 8.0, -20.0
    translator.model.project = lambda hidden: likely.expand(*hidden.shape[:-1], -1).clone()
    for beam in (1, 5):
        assert words_again(translator.translate(FRENCH[1], beam=beam, guard=False)) > 20
        found = translator.translate([FRENCH[1], FRENCH[2]], beam=beam)
        assert [words_again(one) <= 2 for one in found] == [True, True]
        found = translator.translate(["le chat", "le chat chat chat chat"], beam=beam, max_tokens=4)
        assert [words_again(one) for one in found] == [2, 4]
        found = translator.translate(FRENCH[1], beam=beam, prefix="we")
        assert found.text.startswith("we") and words_again(found) <= 2


def test_the_same_words_in_other_pieces_end_with_the_first(
    translator_of: Make, pieces: SubwordTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that may not write the same tokens again may still find others for the same words."""
    translator = translator_of()
    start, cat, end = pieces.encode_all(["the", "cat", "sleeps"])
    other = next(one for one in pieces.sample_all(["cat"] * 99, seed=1, alpha=0.0) if one != cat)
    circle = [*start, *cat, *other, *cat, *end]
    assert pieces.decode(circle) == "the cat cat cat sleeps"

    def find(model: Any, source: list[list[int]], **_: Any) -> list[list[Hypothesis]]:
        return [[Hypothesis(circle, [-1.0] * len(circle), -1.0 * len(circle), -1.0, True)]] * len(source)

    monkeypatch.setattr(sentence_search, "generate_tokens", find)
    found = translator.translate(["le chat", "chat chat chat"])
    assert [one.text for one in found] == ["the cat", "the cat cat cat sleeps"]
    assert found[0].ids == [*start, *cat] and found[0].score == -len(found[0].ids) and not found[0].finished


def test_a_text_that_must_have_a_length_has_it(translator_of: Make) -> None:
    """There is room for it, and neither END nor the guard takes it away."""
    translator = translator_of()
    again, other = translator.target_tokenizer.encode("the house")[:2]
    likely = torch.zeros(translator.target_tokenizer.size)
    likely[END], likely[again], likely[other] = 9.0, 8.0, 7.0
    translator.model.project = lambda hidden: likely.expand(*hidden.shape[:-1], -1).clone()
    for search in (Greedy(rules=(MinTokens(60),)), Beam(2, rules=(NoRepeat(40), MinTokens(60)))):
        found = translator.translate("le chat", search=search)  # whose room is 26 tokens else
        assert len(found.ids) == 61 and found.finished
        assert len(translator.translate("le chat", search=search, max_tokens=7).ids) == 7


def test_there_is_room_for_phrases_that_must_come(translator_of: Make) -> None:
    translator = translator_of()
    phrase = " ".join(ENGLISH)
    needed = len(translator.target_tokenizer.encode(phrase))
    found = translator.translate("le chat", include=[phrase])
    assert needed > 26 and phrase in found.text
    with pytest.raises(UsageError, match=f"constraints of {needed} tokens do not fit into max_tokens=26"):
        translator.translate("le chat", include=[phrase], max_tokens=26)


def test_an_empty_translation_is_searched_anew(translator_of: Make) -> None:
    translator = translator_of()
    likely = torch.zeros(translator.target_tokenizer.size)
    likely[END] = 9.0
    translator.model.project = lambda hidden: likely.expand(*hidden.shape[:-1], -1).clone()
    for beam in (1, 5):
        assert translator.translate("le chat", beam=beam, guard=False).ids == [END]
        assert len(translator.translate("le chat", beam=beam).ids) == 2
        assert translator.translate("le chat", beam=beam, prefix="the").text == "the"


@pytest.mark.parametrize("text", ["...", " ?", "12", "3,50 €", "😀", "« »"])
def test_what_has_no_letters_stays(translator: Translator, text: str) -> None:
    found, whole = translator.translate([text, f"{text}\nle chat"], max_tokens=4)
    assert found.text == text.strip() and found.ids == []
    assert whole.text.startswith(f"{text.strip()}\n") and whole.ids == whole.parts[1].ids
    assert len(whole.source_tokens) == len(whole.parts[1].source_ids)
    assert translator.translate(text, max_tokens=4, guard=False).ids


def test_tokenizers_that_do_not_fit(translator_of: Make, lossless: Any) -> None:
    model = translator_of().model
    with pytest.raises(ModelError, match=f"the source tokenizer has {lossless.size} tokens, but the model only"):
        Translator(model, lossless, lossless)


# Words that the model cannot know, with attention rigged so that we know where it looks.


def rigged(
    monkeypatch: pytest.MonkeyPatch, translator: Translator, target: list[int], looks: list[int], *, head: int = 1
) -> None:
    """Let the search find `target`, whose token i looks at source token looks[i] in the given head."""

    def find(model: Any, source: list[list[int]], **_: Any) -> list[list[Hypothesis]]:
        return [[Hypothesis(target, [0.0] * len(target), 0.0, 0.0, True)]] * len(source)

    def attend(model: Any, source: list[int], ids: Sequence[int], **_: Any) -> dict[str, torch.Tensor]:
        weights = torch.full((2, len(ids), len(source)), 0.0)
        weights[1 - head, :, 0] = 1.0
        weights[head] = F.one_hot(torch.tensor(looks), len(source)).float()
        return {"decoder.0.cross": weights, "decoder.1.cross": weights.flip(0)}

    monkeypatch.setattr(sentence_search, "generate_tokens", find)
    monkeypatch.setattr(forced, "forced_attention", attend)


@pytest.fixture
def names(translator_of: Make, pieces: Any) -> Translator:
    """A translator whose training never met q or z (they are bytes), nor a digit."""
    unseen = sorted({token for text in ("q", "z", "0123456789") for token in pieces.encode(text)[1:]})
    return translator_of(unseen_pieces=unseen, alignment={"layer": "decoder.0.cross", "head": 1})


def test_a_long_word_with_unseen_pieces_is_not_parted(names: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names.reader, "trained", 12)
    assert [part.source for part in names.translate(f"le {'zqwx' * 50}", max_tokens=3).parts] == ["le", "zqwx" * 50]
    assert len(names.translate("chat" * 30, beam=1, max_tokens=3).parts) > 2


def test_words_with_unseen_pieces_are_one_unknown(names: Translator) -> None:
    read = names.read("Qazaq visite la maison")
    assert read.ids.count(UNKNOWN) == 1 and read.ids[0] == UNKNOWN and read.ids[-1] == END
    assert [word.text for word in read.words] == ["Qazaq", "visite", "la", "maison"]
    assert read.ids[1:-1] == names.source_tokenizer.encode("visite la maison")
    spans = [tuple(names.source_tokenizer.pieces(read.ids[word.start : word.end])) for word in read.words]
    assert spans[0] == ("<unk>",) and "".join(spans[1]) == "▁visite"
    assert UNKNOWN not in names.read("le chat noir").ids


def test_symbols_that_training_never_met_stand_alone(translator_of: Make, pieces: Any) -> None:
    """So the word before a smiley is read all the same. Signs that are put together are one word."""
    unseen = [token for token in range(pieces.size) if pieces.pieces([token])[0].startswith("<0x")]
    translator = translator_of(unseen_pieces=unseen)
    for text, words in (
        ("le chat😀", ["le", "chat", "😀"]),
        ("😀😀 le chat 👩‍💻❤️!", ["😀😀", "le", "chat", "👩‍💻❤️", "!"]),
        ("€le €", ["€", "le", "€"]),
    ):
        read = translator.read(text)
        assert [word.text for word in read.words] == words
        spans = [read.ids[word.start : word.end] for word in read.words]
        for word, ids in zip(words, spans, strict=True):
            assert (UNKNOWN in ids) == (not word.isascii() or word == "!"), word
    read = translator.read("CHÂT LE")  # no capital  in training, and no small one either
    assert read.ids[0] == UNKNOWN
    assert translator.read("GARÇON").ids == translator.read("garçon").ids
    assert translator.read("lé chat").ids == translator.read("lé chat").ids  # an accent is no symbol
    assert translator_of().read("le chat😀").ids.count(UNKNOWN) == 0


def test_an_unknown_word_is_copied_with_its_spaces(names: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = names.target_tokenizer.encode
    target = [*encode("we visit"), UNKNOWN, *encode("in September."), END]
    source = "Nous visitons Qazaq"
    place = names.read(source).ids.index(UNKNOWN)
    rigged(monkeypatch, names, target, [place] * len(target))
    found = names.translate(source)
    assert found.text == "we visit Qazaq in September."
    assert "<unk>" in found.tokens and found.words[2].text == "Qazaq"
    assert [found.alignment().target[2], found.alignment().source[2]] == ["Qazaq", "Qazaq"]


def test_each_unknown_takes_the_unknown_word_it_looks_at(names: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "Zoz voit Qaqa"
    ids = names.read(source).ids
    first, second = (i for i, token in enumerate(ids) if token == UNKNOWN)
    target = [UNKNOWN, *names.target_tokenizer.encode("sees"), UNKNOWN, END]
    looks = [second, *[1] * (len(target) - 3), first, 0]
    rigged(monkeypatch, names, target, looks)
    assert names.translate(source).text == "Qaqa sees Zoz"


def test_an_unknown_word_is_preferred_to_a_known_one(names: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "la maison Zoz"  # all weight lies on "la", none on the unknown word
    rigged(monkeypatch, names, [UNKNOWN, END], [0, 0])
    assert names.translate(source).text == "Zoz"
    rigged(monkeypatch, names, [UNKNOWN, END], [0, 0])
    assert names.translate("la maison").text == "la"  # none is unknown: the most attended one


def test_punctuation_is_not_copied_twice(names: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    rigged(monkeypatch, names, [UNKNOWN, END], [0, 0])
    assert names.translate("Zoz.").text == "Zoz."
    full_stop = names.target_tokenizer.encode("September.")[-1:]
    assert names.target_tokenizer.pieces(full_stop) == ["."]
    rigged(monkeypatch, names, [UNKNOWN, *full_stop, END], [0, 0, 0])
    assert names.translate("Zoz.").text == "Zoz."


def test_the_head_of_the_config_decides(
    translator_of: Make, names: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = translator_of(unseen_pieces=names.info["unseen_pieces"], alignment={"layer": "decoder.0.cross", "head": 0})
    for translator, wanted in ((names, "Qaqa"), (other, "Zoz")):
        rigged(monkeypatch, translator, [UNKNOWN, END], [1, 1], head=1)  # head 0 looks at token 0
        assert translator.translate("Zoz Qaqa").text == wanted


def test_unknown_characters_are_copied_one_by_one(
    translator_of: Make, letters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = translator_of(tokenizer=letters, alignment={"layer": "decoder.0.cross", "head": 1})
    source = "caf€ ‰"
    assert [i for i, token in enumerate(translator.read(source).ids) if token == UNKNOWN] == [3, 5]
    assert [word.text for word in translator.read(source).words] == ["caf€", "‰"]
    target = [*letters.encode("a "), UNKNOWN, *letters.encode("b"), UNKNOWN, END]
    rigged(monkeypatch, translator, target, [0, 0, 5, 0, 3, 0])
    found = translator.translate(source)
    assert found.text == "a ‰b€" and [word.text for word in found.words] == ["a", "‰b€"]


def test_a_model_without_attention_leaves_unknown_words_out(
    translator_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = translator_of("rnn-seq2seq")
    target = [*translator.target_tokenizer.encode("the"), UNKNOWN, *translator.target_tokenizer.encode("cat"), END]

    def find(*_: Any, **__: Any) -> list[list[Hypothesis]]:
        return [[Hypothesis(target, [0.0] * len(target), 0.0, 0.0, True)]]

    monkeypatch.setattr(sentence_search, "generate_tokens", find)
    assert translator.translate("le chat").text == "the cat"


def test_words_that_must_come(translator: Translator) -> None:
    """In each translation, whatever the model thinks of them; whole texts only, and a beam."""
    texts, words = [FRENCH[0], FRENCH[1]], ["red apple", "September"]
    phrases = [translator.target_tokenizer.encode(word) for word in words]
    for found in translator.translate(texts, include=words, max_tokens=16):
        assert all(word in found.text for word in words)
        for phrase in phrases:
            assert any(found.ids[i : i + len(phrase)] == phrase for i in range(len(found.ids)))
    with pytest.raises(UsageError, match="include works for one sentence, but a text has several parts"):
        translator.translate(f"{texts[0]}\n{texts[1]}", include=words)
    with pytest.raises(UsageError, match="constraints need beam search"):
        translator.translate(texts, beam=1, include=words)
    with pytest.raises(UsageError, match="tokens do not fit into max_tokens=1"):
        translator.translate(texts, include=words, max_tokens=1)


class SameText:
    """A tokenizer whose tokens decode to few texts, as subwords do that spell a word in several ways."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def decode(self, tokens: Sequence[int], *, unknown: Sequence[str] = ()) -> str:
        return "abcd"[sum(tokens) % 4] + " " * (len(tokens) % 3)


@pytest.mark.parametrize("search", [None, Sample(seed=1), MinimumRisk(9, Sample(seed=1))])
def test_alternatives_have_different_texts(translator_of: Make, search: Any) -> None:
    """There are only four texts."""
    translator = translator_of()
    translator.target_tokenizer = SameText(translator.target_tokenizer)
    for text in FRENCH:
        result = translator.translate(text, alternatives=3, search=search, max_tokens=6, guard=False)
        texts = [alternative.text.strip() for alternative in result.alternatives]
        assert len(texts) == len(set(texts)) == 3 and result.alternatives[0] is result
    assert 3 <= len(translator.translate(FRENCH[0], alternatives=5, max_tokens=6, guard=False).alternatives) <= 4


@pytest.mark.parametrize("text", ["a" * 5000, "la " * 300, "Ha ha! " * 60, "aaaab" * 40])
def test_repetitive_input_is_copied(translator_of: Make, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took 20 seconds, and the model invented 11,719 characters."""
    translator = translator_of()
    monkeypatch.setattr(
        "regard.api.translation.sentence_search.generate_tokens", lambda *_, **__: pytest.fail("there was a search")
    )
    with pytest.warns(UserWarning, match=r"only repeats a few words or letters, so it is copied \("):
        assert translator.translate(text).text == text.strip()


def test_repetitive_words_do_not_hide_the_rest(translator_of: Make) -> None:
    translator = translator_of(recipe={"data": {"max_length": 20}})
    with pytest.warns(UserWarning, match=r"a text of 500 characters only repeats"):
        result = translator.translate("Jane visite l'Afrique " + "a" * 500)
    *_, copied = result.parts
    assert copied.text == "a" * 500 and result.parts[0].ids
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator.translate("ha ha ha ha ha")  # people laugh
