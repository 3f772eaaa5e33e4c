"""Perplexity, bits per token and bits per character.

Jelinek et al. 1977 (perplexity), Brown et al. 1992 (bits per character); C2. All of them are computed from the true
likelihood, whatever loss trained the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from regard.errors import DataError


@dataclass(frozen=True)
class Likelihood:
    """The negative log-likelihood of a text in nats, and the size of the text.

    `tokens` counts the predicted tokens, including end tokens; `characters` those of the text. Perplexities are
    comparable only between models with the same tokenizer; bits per character between all models.
    """

    nll: float
    tokens: int
    characters: int | None = None

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise DataError("there is no text to compute a perplexity of: not one token was predicted")
        if self.characters is not None and self.characters < 1:
            raise DataError("there is no text to compute bits per character of: it has no characters")

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(nll / tokens): as uncertain as a choice among so many equally likely tokens."""
        return perplexity_of(self.loss)

    @property
    def bits_per_token(self) -> float:
        return self.loss / math.log(2)

    @property
    def bits_per_character(self) -> float | None:
        return None if self.characters is None else self.nll / math.log(2) / self.characters

    def to_dict(self) -> dict[str, float | int | None]:
        return {
            "nll": self.nll,
            "tokens": self.tokens,
            "characters": self.characters,
            "loss": self.loss,
            "perplexity": self.perplexity,
            "bits_per_token": self.bits_per_token,
            "bits_per_character": self.bits_per_character,
        }


def perplexity_of(loss: float) -> float:
    """Return the exponential of the nats per token, or infinity if it overflows."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
