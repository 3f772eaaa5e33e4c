"""Placeholders as tokens of a subword vocabulary."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from regard.text.tokenizers.special_tokens import PLACEHOLDERS, UNKNOWN
from regard.text.tokenizers.subwords import SubwordTokenizer, train_subwords

LINES = ["le chat dort (ici), l'eau est là.", "the cat sleeps (here), water is there."] * 50
TEXTS = st.text(st.sampled_from([*PLACEHOLDERS, *" ,.('abé"]), max_size=20)


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> SubwordTokenizer:
    return train_subwords(LINES, size=None, kind=request.param, lossless=False)


def test_each_placeholder_is_one_token_of_its_own(tokenizer: SubwordTokenizer) -> None:
    tokens = [tokenizer.encode(symbol) for symbol in PLACEHOLDERS]
    assert {len(token) for token in tokens} == {1}
    assert len({token for (token,) in tokens}) == len(PLACEHOLDERS)


@given(text=TEXTS)
def test_texts_with_placeholders_survive_encoding(tokenizer: SubwordTokenizer, text: str) -> None:
    expected = " ".join(text.split())
    assert tokenizer.decode(tokenizer.encode(text)) == expected
    assert tokenizer.decode(tokenizer.sample_all([text], seed=1, alpha=0.3)[0]) == expected
    words = tokenizer.words(tokenizer.encode(text))
    assert [word.text for word in words] == expected.split()


def test_placeholders_beside_unknown_words(tokenizer: SubwordTokenizer) -> None:
    tokens = [UNKNOWN, *tokenizer.encode(f"{PLACEHOLDERS[0]}, le"), UNKNOWN]
    assert tokenizer.decode(tokens, unknown=["Zoé", "Ali"]) == f"Zoé {PLACEHOLDERS[0]}, le Ali"
