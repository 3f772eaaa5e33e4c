"""What whole models can do, as protocols: code that uses a model asks for the methods that it needs, not for a class.

`isinstance(model, EncoderDecoder)` tells whether a model has them.

    B batch   n source tokens   m target tokens   p width   V vocabulary
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from regard.models.config import Config
from regard.models.decoding_state import Encoded


@runtime_checkable
class Encoder(Protocol):
    """A model, or several models together, that read a text."""

    def encode(self, source: Tensor, /) -> Any:
        """(B, n) -> one vector for each token."""


@runtime_checkable
class Decoder(Protocol):
    """A model, or several models together, that write a text token by token."""

    def decode(self, tokens: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """(B, m) -> (B, m, p): a whole text, or the next tokens of a state that `start` made."""

    def project(self, hidden: Tensor) -> Tensor:
        """(…, p) -> logits over the vocabulary (…, V)."""

    def start(self, *args: Any, **kwargs: Any) -> Any:
        """The state before the first token: of so many texts, or of an encoded source."""


@runtime_checkable
class TokenPredictor(Decoder, Protocol):
    """A decoder that can be trained on a loss over its vocabulary."""

    training: bool

    @property
    def output_table(self) -> tuple[Tensor, Tensor | None]:
        """The matrix (V, p) that `project` multiplies by, and the bias that it adds."""


@runtime_checkable
class EncoderDecoder(TokenPredictor, Protocol):
    """A model that reads a source and predicts the tokens of a target."""

    def encode(self, source: Tensor) -> Encoded:
        """(B, n) -> the source as the decoder sees it."""


@runtime_checkable
class TextEncoder(Protocol):
    """A model that makes one vector of a text."""

    training: bool

    def __call__(self, tokens: Tensor) -> Tensor:
        """(B, n) -> (B, p)."""

    def encode(self, tokens: Tensor) -> Encoded:
        """(B, n) -> one vector for each token."""


def config_of(model: object) -> Config:
    """Return the settings of one of regard's models; TypeError for other networks."""
    config = getattr(model, "config", None)
    if not isinstance(config, Config):
        raise TypeError(f"model must be one of regard's models, got {type(model).__name__}")
    return config
