"""Long texts in parts: where they are cut, what is put together again, and where each part looks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies as st

from regard.api.translation.split_long_text import TextPart, split_text
from regard.api.translator import Translator

Make = Callable[..., Translator]


def within(limit: int) -> Callable[[str], bool]:
    return lambda text: len(text.split()) <= limit


def texts(text: str, limit: int) -> list[str]:
    return [part.text for part in split_text(text, within(limit))]


def test_what_fits_stays_whole() -> None:
    assert split_text("Un. Deux ! Trois ?", within(5)) == [TextPart("Un. Deux ! Trois ?", "")]
    assert split_text("", within(5)) == [TextPart("", "")]


def test_sentences_are_parted_where_the_whole_does_not_fit() -> None:
    assert split_text("Il dort. Tu viens ?  Non… « Oui. » Bon", within(3)) == [
        TextPart("Il dort.", " "),
        TextPart("Tu viens ?", "  "),
        TextPart("Non…", " "),
        TextPart("« Oui. »", " "),
        TextPart("Bon", ""),
    ]
    assert texts("Oui. Non. Il dort bien.", 4) == ["Oui.", "Non.", "Il dort bien."]  # also where two would fit
    for whole in ("M. Dupont dort bien.", "J. K. Rowling écrit.", "Le Dr. Petit dort.", "Voir art. 5 ici."):
        assert texts(f"{whole} Oui.", 4)[0] == whole  # no sentence ends inside


def test_clauses_and_words_stay_together_as_many_as_fit() -> None:
    assert texts("un deux, trois, quatre cinq six sept huit; neuf", 3) == [
        "un deux, trois,",
        "quatre cinq six",
        "sept huit;",
        "neuf",
    ]


def test_a_word_is_parted_where_it_does_not_fit_alone() -> None:
    parts = split_text("ab abcdefghijkl mn", lambda text: len(text) <= 7)
    assert parts == [TextPart("ab", " "), TextPart("abcdefg", ""), TextPart("hijkl", " "), TextPart("mn", "")]
    assert texts("aaa b", 0) == ["a", "a", "a", "b"]  # nothing fits, so all is as short as can be


@given(st.text("ab ", max_size=60), st.integers(1, 12))
def test_as_many_words_stay_together_as_fit(text: str, limit: int) -> None:
    """As if they were joined one by one."""
    wanted: list[str] = []
    long = False  # what is left of a word that was parted stays alone
    for word in text.split():
        letters = [word[start : start + limit] for start in range(0, len(word), limit)]
        if wanted and not long and len(wanted[-1]) + 1 + len(word) <= limit:
            wanted[-1] += f" {word}"
        else:
            wanted += letters
        long = len(letters) > 1
    found = split_text(" ".join(text.split()), lambda some: len(some) <= limit)
    assert [part.text for part in found if part.text] == wanted


@pytest.mark.parametrize("text", ["a" * 100_000, "ab " * 33_333, "ab, cd " * 14_000])
def test_the_work_grows_with_the_text_and_no_faster(text: str) -> None:
    """Counted in characters that are looked at, whole and in halves."""
    work = []
    for some in (text[: len(text) // 2], text):
        read: list[int] = []

        def fits(part: str, read: list[int] = read) -> bool:
            read.append(len(part))
            return len(part) <= 500

        split_text(some, fits)
        work.append(sum(read))
    assert work[1] < 20 * len(text) and work[1] < 2.1 * work[0]


def test_lines_are_parted_always() -> None:
    assert split_text("Bonjour.\n\n Au revoir.\n", within(99)) == [
        TextPart("Bonjour.", "\n\n "),
        TextPart("Au revoir.", "\n"),
        TextPart("", ""),
    ]


def test_many_blanks_take_no_longer_than_other_characters() -> None:
    """A regular expression that tries to begin at each of them would take minutes."""
    blanks = " " * 300_000
    assert split_text(f"a{blanks}b\n c", within(3)) == [TextPart(f"a{blanks}b", "\n "), TextPart("c", "")]


@given(st.text(st.sampled_from('ab.!?…,;"»)M \n\u00a0。'), max_size=60), st.integers(0, 6))
def test_the_parts_are_the_text(text: str, limit: int) -> None:
    parts = split_text(text, within(limit))
    assert "".join(part.text + part.blanks for part in parts) == text
    assert all(within(limit)(part.text) or len(part.text.split()) == 1 for part in parts)


@pytest.fixture
def short(translator_of: Make) -> Translator:
    """A translator that was trained on few tokens."""
    return translator_of(recipe={"data": {"max_length": 12}}, alignment={"layer": "decoder.0.cross", "head": 1})


LONG = "le chat noir dort. la petite fille mange.\nil ne mange pas la pomme"


def test_a_long_text_is_that_of_its_parts(short: Translator) -> None:
    found = short.translate(LONG, alternatives=2, max_tokens=7)
    cut = ["le chat noir dort.", "la petite fille mange.", "il ne mange pas la pomme"]
    alone = [short.translate(text, alternatives=2, max_tokens=7) for text in cut]
    assert [part.source for part in found.parts] == cut
    assert [part.ids for part in found.parts] == [one.ids for one in alone]
    assert found.text == f"{alone[0].text} {alone[1].text}\n{alone[2].text}"
    assert found.source == LONG and found.ids == [token for one in alone for token in one.ids]
    assert found.score == pytest.approx(sum(one.score for one in alone), abs=1e-3)
    assert len(found.alternatives) == 2 and found.alternatives[0] is found
    other = found.alternatives[1]
    assert [part.ids for part in other.parts] == [one.alternatives[1].ids for one in alone]
    for one in (found, other):
        assert (len(one.tokens), len(one.source_tokens)) == (len(one.ids), len(one.source_ids))
        assert [word.text for word in one.words] == [word.text for part in one.parts for word in part.words]
        first = one.source_words[len(one.parts[0].source_words)]  # of the second part
        assert first.text == "la" and one.source_tokens[first.start - 1 : first.end] == ["</s>", "▁la"]


def test_each_part_looks_at_itself(short: Translator) -> None:
    found = short.translate(LONG, max_tokens=7)
    cross = found.attention.cross
    assert cross is not None and cross.shape[2:] == (len(found.tokens), len(found.source_tokens))
    torch.testing.assert_close(cross.sum(-1), torch.ones(cross.shape[:-1]))
    row = column = 0
    for part in found.parts:
        m, n = len(part.ids), len(part.source_ids)
        assert part.attention.cross is not None
        torch.testing.assert_close(cross[:, :, row : row + m, column : column + n], part.attention.cross)
        row, column = row + m, column + n
    words = found.alignment()
    assert words.source == [word.text for word in found.source_words] + ["</s>"]
    first = len(found.parts[0].source_words)
    assert all((i < first) == (j < len(found.parts[0].words)) for i, j in words.pairs)


def test_the_prefix_begins_the_first_part(short: Translator) -> None:
    found = short.translate(LONG, prefix="the cat", max_tokens=4)
    assert found.text.startswith("the cat") and not found.parts[1].text.startswith("the cat")


def test_learned_positions_are_a_limit_too(translator_of: Make) -> None:
    translator = translator_of("learned")
    found = translator.translate("le chat noir dort " * 20, max_tokens=3)
    assert len(found.parts) > 2 and all(len(part.source_ids) <= 24 for part in found.parts)


def test_without_the_guard_texts_stay_whole(short: Translator) -> None:
    with pytest.warns(UserWarning, match="trained on at most 12"):
        assert not short.translate(LONG.replace("\n", " "), max_tokens=3, guard=False).parts
