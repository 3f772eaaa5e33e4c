"""Protocols of whole models: code that uses a model requires the methods it needs, not a class.

`isinstance(model, EncoderDecoder)` checks whether a model has them. `TextModel` is a base class, because the searches
also need what an nn.Module has, and types have no intersection of a protocol and a class.

    B batch   n source tokens   m target tokens   p width   V vocabulary
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from regard.models.config import Config
from regard.models.decoding_state import Encoded


@runtime_checkable
class Encoder(Protocol):
    """A model, or an ensemble, that encodes a source."""

    def encode(self, source: Tensor, /) -> Any:
        """Encode (B, n) tokens, one vector for each."""


@runtime_checkable
class Decoder(Protocol):
    """A model, or an ensemble, that generates text token by token."""

    def decode(self, tokens: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Decode (B, m) -> (B, m, p): a whole text, or the next tokens of a state that `start` returned."""

    def project(self, hidden: Tensor) -> Tensor:
        """Project (…, p) to logits over the vocabulary, (…, V)."""

    def start(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state before the first token, for a number of texts or for an encoded source."""


class TextModel(nn.Module):
    """A network that writes text token by token, or an ensemble of them: what the searches need.

    All of regard's are subclasses. Any module with these methods, and with `encode` if it reads a source, does as well.
    """

    config: Any  # the settings of this kind of model
    encode: Any  # a method of models that read a source

    @property
    def traits(self) -> frozenset[str]:
        """The name of the class, which nothing knows until the class declares its own traits; see regard.traits."""
        return frozenset({f"module {type(self).__name__}"})

    @abstractmethod
    def decode(self, *args: Any, **kwargs: Any) -> Any:
        """See Decoder.decode."""

    @abstractmethod
    def project(self, *args: Any, **kwargs: Any) -> Tensor:
        """See Decoder.project."""

    @abstractmethod
    def start(self, *args: Any, **kwargs: Any) -> Any:
        """See Decoder.start."""


@runtime_checkable
class TokenPredictor(Decoder, Protocol):
    """A decoder that can be trained with a loss over its vocabulary."""

    training: bool

    @property
    def output_table(self) -> tuple[Tensor, Tensor | None]:
        """The matrix (V, p) and the bias of `project`."""


@runtime_checkable
class EncoderDecoder(TokenPredictor, Protocol):
    """A model that encodes a source and predicts the tokens of a target."""

    def encode(self, source: Tensor) -> Encoded:
        """Encode the source (B, n) for the decoder."""


@runtime_checkable
class PadsSources(Protocol):
    """A model whose sources are no text, and which pads a batch of them itself."""

    def pad_sources(self, sources: Sequence[Any]) -> Tensor:
        """Return the sources as one tensor of equal rows."""

    def encode(self, source: Tensor, /) -> Any:
        """Encode that tensor."""


@runtime_checkable
class TextEncoder(Protocol):
    """A model that computes one vector for a text."""

    training: bool

    def __call__(self, tokens: Tensor) -> Tensor:
        """Compute the vectors of texts, (B, n) -> (B, p)."""

    def encode(self, tokens: Tensor) -> Encoded:
        """Encode (B, n) tokens, one vector for each."""


def config_of(model: object) -> Config:
    """Return the settings of one of regard's models; TypeError for other networks."""
    config = getattr(model, "config", None)
    if not isinstance(config, Config):
        raise TypeError(f"model must be one of regard's models, got {type(model).__name__}")
    return config
