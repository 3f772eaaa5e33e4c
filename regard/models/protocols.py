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
class Model(Protocol):
    """Any model of regard: a network with its settings."""

    training: bool

    @property
    def config(self) -> Any:
        """The settings, a `Config`; which one depends on the kind of model."""


@runtime_checkable
class TokenPredictor(Protocol):
    """A model that predicts next tokens: states of a text, and logits of states."""

    training: bool

    def decode(self, tokens: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """(B, m) -> (B, m, p): a whole text, or the next tokens of a state that `start` made."""

    def project(self, hidden: Tensor) -> Tensor:
        """(…, p) -> logits over the vocabulary (…, V)."""

    @property
    def output_table(self) -> tuple[Tensor, Tensor | None]:
        """The matrix (V, p) that `project` multiplies by, and the bias that it adds."""

    def start(self, *args: Any, **kwargs: Any) -> Any:
        """The state before the first token: of so many texts, or of an encoded source."""


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
