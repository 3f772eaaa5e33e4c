"""The special tokens, and sentences put together into a batch."""

from __future__ import annotations

import torch
from hypothesis import given, strategies as st

from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, START, UNKNOWN, pad_batch, wrap

sentences = st.lists(st.lists(st.integers(4, 99), max_size=6), max_size=5)


def test_they_are_the_first_rows_of_a_vocabulary() -> None:
    assert (PAD, UNKNOWN, START, END) == (0, 1, 2, 3)
    assert SPECIAL_TOKENS == ("<pad>", "<unk>", "<s>", "</s>")


def test_wrap() -> None:
    assert wrap([7, 8]) == [2, 7, 8, 3]
    assert wrap([7, 8], start=False) == [7, 8, 3]
    assert wrap([7, 8], end=False) == [2, 7, 8]
    assert wrap((7, 8), start=False, end=False) == [7, 8]
    assert wrap([]) == [2, 3]


def test_wrap_leaves_the_sentence_alone() -> None:
    sentence = [7, 8]
    wrap(sentence, start=False, end=False).append(9)
    assert sentence == [7, 8]


def test_pad_batch() -> None:
    batch = pad_batch([[5, 6, 7], [8], []])
    assert batch.tolist() == [[5, 6, 7], [8, 0, 0], [0, 0, 0]]
    assert batch.dtype == torch.long
    assert pad_batch([[5], [6, 7]], pad_id=9).tolist() == [[5, 9], [6, 7]]


@given(sentences)
def test_padding_is_at_the_end_and_nowhere_else(sentences: list[list[int]]) -> None:
    """No sentence and empty sentences too: the shape is always (B, longest)."""
    batch = pad_batch(sentences)
    assert batch.shape == (len(sentences), max(map(len, sentences), default=0))
    for row, sentence in zip(batch.tolist(), sentences, strict=True):
        assert row[: len(sentence)] == sentence
        assert set(row[len(sentence) :]) <= {PAD}
