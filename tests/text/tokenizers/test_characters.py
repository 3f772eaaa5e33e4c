"""Characters as tokens."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError, ModelError
from regard.text.tokenizers.characters import CharacterTokenizer, train_characters
from regard.text.tokenizers.special_tokens import END, PAD, START, UNKNOWN
from regard.text.tokenizers.tokenizer import Word


def test_the_vocabulary_is_sorted() -> None:
    tokenizer = train_characters(["ba", "c a\n"])
    assert tokenizer.size == 4 + 5
    assert tokenizer.encode("\n abc") == [4, 5, 6, 7, 8]
    assert tokenizer.encode_all(["a", "", "bz"]) == [[6], [], [7, UNKNOWN]]
    assert tokenizer.pieces([START, 4, 5, 6, UNKNOWN, END]) == ["<s>", "⏎", "▁", "a", "<unk>", "</s>"]
    name, content = tokenizer.save()
    assert (name, json.loads(content)) == ("characters.json", {"characters": "\n abc"})


@given(st.text())
def test_known_characters_come_back(text: str) -> None:
    if not text:
        return
    tokenizer = train_characters([text])
    tokens = tokenizer.encode(text)
    assert tokenizer.decode([START, *tokens, END, PAD]) == unicodedata.normalize("NFC", text)
    assert min(tokens) >= 4 and max(tokens) < tokenizer.size
    again = CharacterTokenizer(tokenizer.save()[1])
    assert again.encode(text) == tokens


def test_unknown_characters() -> None:
    tokenizer = train_characters(["abc"])
    assert tokenizer.decode(tokenizer.encode("axbyc")) == "abc"
    assert tokenizer.decode(tokenizer.encode("axbyc"), unknown=["X"]) == "aXbc"
    assert tokenizer.encode("e\u0301") == [UNKNOWN]  # one character in NFC


@given(st.text("ab \n\t", max_size=20))
def test_words(text: str) -> None:
    tokenizer = train_characters(["ab \n\t"])
    words = tokenizer.words(tokenizer.encode(text))
    assert [word.text for word in words] == text.split()
    assert all(text[word.start : word.end].strip() == word.text for word in words)


def test_words_with_special_and_unknown_tokens() -> None:
    tokenizer = train_characters(["ab "])
    tokens = [START, *tokenizer.encode("ab zb"), END]
    assert tokenizer.words(tokens) == [Word("ab", 1, 3), Word("<unk>b", 3, 6)]


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"characters": 3}', b'{"characters": ""}', b'{"characters": "ba"}', b'{"characters": "aa"}',
     b'{"characters": "\\ud800"}', b'{"characters": ["a"]}', b'{"characters": "ab", "x": 1}', b"\xff\xfe\x00",
     b"[" * 10**6],
)  # fmt: skip
def test_damaged_files(content: bytes) -> None:
    with pytest.raises(ModelError, match="not the characters of a tokenizer"):
        CharacterTokenizer(content)


def test_nothing_to_learn_from() -> None:
    with pytest.raises(DataError, match="no characters"):
        train_characters(["", ""])
