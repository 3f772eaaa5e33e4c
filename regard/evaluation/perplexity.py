"""How well a model predicts text: perplexity, bits per token and per character.

Jelinek et al. 1977 (perplexity), Brown et al. 1992 (bits per character); C2. All of it is of the true
likelihood, whatever the loss was that trained the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from regard.errors import DataError


@dataclass(frozen=True)
class Likelihood:
    """The negative log-likelihood of a text in nats, and how much text it was.

    `tokens` counts what was predicted, end tokens too; `characters` are those of the text. Perplexities compare only
    between models with the same tokens; bits per character compare between all.
    """

    nll: float
    tokens: int
    characters: int | None = None

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise DataError("there is no text to take the perplexity of: not one token was predicted")
        if self.characters is not None and self.characters < 1:
            raise DataError("there is no text to take the bits per character of: it has no characters")

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        """Of how many equally likely tokens each one would have to be guessed: exp(nll / tokens)."""
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
    """exp of the nats per token, infinite where that is beyond all numbers."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
