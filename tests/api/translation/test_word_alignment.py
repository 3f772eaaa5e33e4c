"""From pieces to words: shares and weights that were counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from regard.api.translation.alignment.word_alignment import make_alignment, shared_weights, token_ends, token_shares
from regard.api.translation.source_text import words_of
from regard.demo.corpus import demo_words
from regard.text.tokenizers.tokenizer import Word

LETTERS = st.text("abcdé'. ", min_size=1, max_size=20).map(lambda text: " ".join(text.split())).filter(bool)


def test_shares_of_pieces_that_cross_words() -> None:
    """Pieces ▁l'A | frique | . on the words l' Afrique . have 3, 6 and 1 letters; the last piece is the end."""
    shares = token_shares([3, 9, 10], ["l'", "Afrique", "."])
    wanted = [[2 / 3, 1 / 3, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    torch.testing.assert_close(shares, torch.tensor(wanted))


def test_pieces_without_letters_belong_to_the_next_letter() -> None:
    """▁ | a | ▁ | half | whole | ▁: the spaces go with the word after them, at the end with the end."""
    shares = token_shares([0, 1, 1, 1, 2, 2], ["a", "é"])
    assert shares.argmax(1).tolist() == [0, 0, 1, 1, 1, 2, 2]
    torch.testing.assert_close(shares.sum(1), torch.ones(7))


def test_source_words_add_up_and_target_words_are_means() -> None:
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.0, 0.0, 1.0]])
    source = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # two pieces are one word
    target = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = shared_weights(weights, source, target)
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
    heads = torch.stack([weights, weights.flip(0)])
    torch.testing.assert_close(shared_weights(heads, source, target)[0], found)


@given(LETTERS)
def test_ends_count_the_letters(pieces: Any, letters: Any, text: str) -> None:
    for tokenizer in (pieces, letters):
        tokens = tokenizer.encode(text)
        ends = token_ends(tokenizer, tokens, words_of(tokenizer, text, tokens))
        assert len(ends) == len(tokens) and ends == sorted(ends)
        if tokenizer is letters:  # a token each, the unknown ones too
            assert ends == [len(text[: i + 1].replace(" ", "")) for i in range(len(text))]
        assert ends[-1] == len(text.replace(" ", ""))


def test_ends_of_bytes(pieces: Any) -> None:
    tokens = pieces.encode("a 🐈b")
    shown = pieces.pieces(tokens)
    ends = token_ends(pieces, tokens, pieces.words(tokens))
    first = next(i for i, piece in enumerate(shown) if piece.startswith("<0x"))
    assert ends[first : first + 4] == [1, 1, 1, 2] and ends[-1] == 3  # the cat is whole with its last byte


def test_ends_of_an_unknown_word(pieces: Any) -> None:
    """A word that became one UNKNOWN keeps its length."""
    words = [Word("le", 0, 1), Word("Zorro", 1, 2), Word("dort", 2, 4)]
    assert token_ends(pieces, [5, 1, *pieces.encode("dort")[:2]], words)[:2] == [2, 7]


def test_pairs_leave_the_end_tokens_out() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    found = make_alignment(weights, ["a", "b", "</s>"], ["x", "y", "</s>"], finished=True)
    assert found.pairs == [(1, 0), (0, 1)]
    cut_off = make_alignment(weights, ["a", "b", "</s>"], ["x", "y", "z"], finished=False)
    assert cut_off.pairs[:2] == [(1, 0), (0, 1)] and len(cut_off.pairs) == 3


@pytest.mark.parametrize("text", ["l'Afrique, c'est grand.", "Jane dort"])
def test_words_of_the_demo_corpus_are_covered(pieces: Any, text: str) -> None:
    """Every word gets a share, and every piece is shared out, for words that are split otherwise than pieces."""
    tokens = pieces.encode(text)
    words = demo_words(text)
    shares = token_shares(token_ends(pieces, tokens, pieces.words(tokens)), words)
    assert shares.shape == (len(tokens) + 1, len(words) + 1)
    torch.testing.assert_close(shares.sum(1), torch.ones(len(tokens) + 1))
    assert (shares.sum(0) > 0).all()
