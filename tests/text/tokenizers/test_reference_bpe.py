"""The readable BPE gives what the library `tokenizers` gives: the same merges, the same pieces."""

from __future__ import annotations

import json

from hypothesis import example, given, strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from regard.text.tokenizers.reference_bpe import apply_merges, learn_merges, merge_pair

TEXT = """
She sells sea shells by the sea shore. The shells that she sells are sea shells, surely; so if she sells shells on the
sea shore, then surely the shells are sea shore shells. A tutor who tooted the flute tried to tutor two tooters to toot.
How much wood would a woodchuck chuck, if a woodchuck could chuck wood? As much wood as a woodchuck would.
Le ver vert va vers le verre vert; l'été, l'élève élève éléphants et élans là-bas.
"""


def library(text: str, merges: int) -> Tokenizer:
    """The library, taught with the same text: words parted by spaces and led by ▁, no token but what it merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    alphabet = len(set("".join("▁" + word for word in text.split())))
    trainer = trainers.BpeTrainer(vocab_size=alphabet + merges, min_frequency=1, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def merges_of(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def test_merges_and_pieces_are_the_librarys() -> None:
    theirs = library(TEXT, 80)
    ours = learn_merges(TEXT, 80)
    assert ours == merges_of(theirs)
    assert len(ours) == 80
    new = "The shellfish would surely tutor a verdant élève ashore, chuckled."
    for text in (TEXT, new):
        assert apply_merges(text, ours) == theirs.encode(text).tokens


def test_the_papers_example() -> None:
    """Four words of Sennrich et al.; counted by hand: e s and s t stand 9 times each, e is the older piece."""
    text = "low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3
    assert learn_merges(text, 3) == [("e", "s"), ("es", "t"), ("l", "o")]
    assert apply_merges("lowest", learn_merges(text, 10)) == ["▁low", "est"]


@given(st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=12), st.integers(1, 12))
@example(["aaaa", "aaa"], 3)
def test_equal_on_any_words(words: list[str], count: int) -> None:
    text = " ".join(words)
    theirs = library(text, count)
    merges = merges_of(theirs)
    assert learn_merges(text, len(merges)) == merges
    assert apply_merges(text, merges) == theirs.encode(text).tokens


def test_it_ends_when_every_word_is_whole() -> None:
    assert learn_merges("ab", 100) == [("a", "b"), ("▁", "ab")]
    assert learn_merges("", 5) == []
    assert apply_merges("", [("a", "b")]) == []


def test_merge_pair_goes_from_left_to_right() -> None:
    assert merge_pair("aaa", ("a", "a")) == ("aa", "a")
    assert merge_pair("aaaa", ("a", "a")) == ("aa", "aa")
    assert merge_pair(("ab", "c", "ab"), ("ab", "c")) == ("abc", "ab")
