"""Perplexity and bits, by hand."""

from __future__ import annotations

import math

import pytest

from regard.errors import DataError
from regard.evaluation.perplexity import Likelihood, perplexity_of


def test_equally_likely_tokens() -> None:
    """Six tokens, each one of eight: perplexity 8, 3 bits a token; over 9 characters 2 bits each."""
    text = Likelihood(6 * math.log(8), 6, 9)
    assert text.loss == pytest.approx(math.log(8))
    assert text.perplexity == pytest.approx(8)
    assert text.bits_per_token == pytest.approx(3)
    assert text.bits_per_character == pytest.approx(2)
    assert text.to_dict() == {
        "nll": text.nll, "tokens": 6, "characters": 9, "loss": text.loss, "perplexity": text.perplexity,
        "bits_per_token": text.bits_per_token, "bits_per_character": text.bits_per_character,
    }  # fmt: skip


def test_unequal_tokens() -> None:
    """Probabilities 1/2 and 1/8: the perplexity is their geometric mean upside down, 4."""
    assert Likelihood(math.log(2) + math.log(8), 2).perplexity == pytest.approx(4)
    assert Likelihood(1.0, 2).bits_per_character is None


def test_a_perplexity_beyond_all_numbers() -> None:
    assert perplexity_of(1000) == math.inf
    assert math.isnan(perplexity_of(math.nan))
    assert perplexity_of(0) == 1


@pytest.mark.parametrize(("tokens", "characters", "message"), [(0, None, "not one token"), (1, 0, "no characters")])
def test_no_text(tokens: int, characters: int | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Likelihood(0.0, tokens, characters)
