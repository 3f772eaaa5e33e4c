"""The settings of the Transformers of text: encoder-decoder, language model, sentence encoder, classifier."""

from __future__ import annotations

from dataclasses import dataclass

from regard.models.config.base import COUNT, vocabulary_of
from regard.models.config.stack import StackConfig
from regard.models.layer_names import is_causal
from regard.settings import SettingError, choice, number
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS

DECODER_SELF = ("attention", "ssru")  # self-attention, or the recurrent layer of layers/ssru.py
POOLINGS = ("mean", "max", "first", "learned")


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(StackConfig):
    """The encoder-decoder Transformer."""

    source_vocabulary: int = vocabulary_of("source")
    target_vocabulary: int = vocabulary_of("target")
    decoder_layers: int | None = number(None, rule=COUNT)  # default: as many as the encoder
    share_embeddings: bool = False  # one table for source and target
    tie_output: bool = True  # the output layer is the target's table (Press & Wolf 2017)
    output_bias: bool = False  # of the output layer
    source_start: bool = False  # the source begins with the start token, as the target does (L2)
    decoder_self: str = choice("attention", DECODER_SELF)  # what mixes the tokens of the target

    @property
    def kind(self) -> str:
        return "transformer"

    @property
    def attention_layers(self) -> list[str]:
        layers = super().attention_layers
        return [layer for layer in layers if not (is_causal(layer) and self.decoder_self == "ssru")]

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers, "decoder": self.decoder_layers or self.layers}

    @property
    def layer_count(self) -> int:
        return self.layers + (self.decoder_layers or 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share_embeddings and self.source_vocabulary != self.target_vocabulary:
            raise SettingError(
                "share_embeddings",
                f"share_embeddings needs one vocabulary for both sides, got source_vocabulary={self.source_vocabulary} "
                f"and target_vocabulary={self.target_vocabulary}",
            )


@dataclass(frozen=True, kw_only=True)
class PointerGeneratorConfig(TransformerConfig):
    """The encoder-decoder Transformer that copies tokens of the source; its source and target have one vocabulary."""

    share_embeddings: bool = True

    @property
    def kind(self) -> str:
        raise NotImplementedError("a SummarizerConfig or an AnswererConfig has a kind")

    @property
    def cross_layers(self) -> list[str]:
        return [*super().cross_layers, "pointer"]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output_bias:
            raise SettingError("output_bias", "a model that copies has no output_bias")
        if self.decoder_self != "attention":
            raise SettingError("decoder_self", "a model that copies has self-attention in its decoder")
        if self.source_vocabulary != self.target_vocabulary:
            raise SettingError(
                "source_vocabulary",
                f"a model that copies has one vocabulary for both sides, got source_vocabulary="
                f"{self.source_vocabulary} and target_vocabulary={self.target_vocabulary}",
            )


@dataclass(frozen=True, kw_only=True)
class SummarizerConfig(PointerGeneratorConfig):
    """The pointer-generator that summarizes texts."""

    @property
    def kind(self) -> str:
        return "summarizer"


@dataclass(frozen=True, kw_only=True)
class AnswererConfig(PointerGeneratorConfig):
    """The pointer-generator that answers questions about a text."""

    @property
    def kind(self) -> str:
        return "answerer"


@dataclass(frozen=True, kw_only=True)
class TransformerLMConfig(StackConfig):
    """The Transformer language model."""

    vocabulary: int = vocabulary_of("target")
    tie_output: bool = True
    output_bias: bool = False

    @property
    def kind(self) -> str:
        return "transformer-lm"

    @property
    def stacks(self) -> dict[str, int]:
        return {"decoder": self.layers}


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(StackConfig):
    """The sentence encoder."""

    vocabulary: int = vocabulary_of("target")
    pooling: str = choice("mean", POOLINGS)
    normalize: bool = True  # vectors of unit length, so that their dot product is the cosine

    @property
    def kind(self) -> str:
        return "encoder"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers}


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(StackConfig):
    """The text classifier."""

    source_vocabulary: int = vocabulary_of("source")
    target_vocabulary: int = vocabulary_of("target")  # the labels, and the special tokens before them

    @property
    def kind(self) -> str:
        return "classifier"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers}

    @property
    def classes(self) -> int:
        """The number of labels."""
        return self.target_vocabulary - len(SPECIAL_TOKENS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes < 1:
            message = f"target_vocabulary={self.target_vocabulary} leaves no label beside the special tokens"
            raise SettingError("target_vocabulary", message)
