"""The settings of the recurrent models: translators with and without attention, and the language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.attention.scores import BUILT_IN, SCORES
from regard.models.config.base import COUNT, SIZE, Config, vocabulary_of
from regard.registry import Registry
from regard.settings import SettingError, choice, number

CELLS = ("rnn", "gru", "lstm")
ATTENTIONS = Registry("attention", "regard.register_score", {"none": None, **BUILT_IN}, SCORES.registered)
STYLES = ("bahdanau", "luong")


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(Config):
    """The cells and their sizes, shared by all recurrent models."""

    cell: str = choice("gru", CELLS)
    layers: int = number(1, rule=COUNT)
    embedding: int = number(256, rule=SIZE)
    hidden: int = number(512, rule=SIZE)
    tie_output: bool = False  # the output layer is the embedding table (Press & Wolf 2017)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie_output and self.embedding != self.hidden:
            raise SettingError(
                "tie_output",
                f"tie_output makes the embedding table the output layer, so embedding must equal hidden; "
                f"got embedding={self.embedding}, hidden={self.hidden}",
                "embedding",
                "hidden",
            )

    @property
    def width(self) -> int:
        return self.hidden

    @property
    def layer_count(self) -> int:
        return self.layers

    @property
    def reads_any_length(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class RecurrentLMConfig(RecurrentConfig):
    """The recurrent language model."""

    vocabulary: int = vocabulary_of("target")

    @property
    def kind(self) -> str:
        return "rnn-lm"

    @property
    def stacks(self) -> dict[str, int]:
        return {"decoder": self.layers}


@dataclass(frozen=True, kw_only=True)
class RecurrentTranslatorConfig(RecurrentConfig):
    """The recurrent encoder-decoder, with attention (Bahdanau's, Luong's) or without (Sutskever's)."""

    source_vocabulary: int = vocabulary_of("source")
    target_vocabulary: int = vocabulary_of("target")
    attention: str = choice("additive", ATTENTIONS)  # the score, or "none": the decoder gets only the last state
    style: str = choice("bahdanau", STYLES)  # attention before the recurrent step (Bahdanau) or after it (Luong)
    input_feeding: bool = False  # Luong's: the last attentional state is an input of the next step
    bidirectional: bool = True
    encoder_hidden: int | None = number(None, rule=SIZE)  # width of each direction; default hidden / directions
    attention_hidden: int | None = number(None, rule=SIZE)  # of the additive and concat scores; default hidden

    @property
    def kind(self) -> str:
        return "rnn-seq2seq" if self.attention == "none" else "rnn-attention"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers, "decoder": self.layers}

    @property
    def cross_layers(self) -> list[str]:
        return [] if self.attention == "none" else ["decoder.cross"]

    @classmethod
    def complete_kind(cls, kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        if kind == "rnn-seq2seq":
            if settings.get("attention", "none") != "none":
                raise SettingError("attention", f"kind = {kind!r} has no attention: take 'rnn-attention'")
            return {**settings, "attention": "none"}
        if settings.get("attention") == "none":
            raise SettingError("attention", "attention = 'none' is kind = 'rnn-seq2seq'")
        return dict(settings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention == "none" and self.input_feeding:
            message = "input_feeding feeds the attentional state back, and attention = 'none' has none"
            raise SettingError("input_feeding", message, "attention")
        if self.input_feeding and self.style != "luong":
            message = "input_feeding belongs to style 'luong'; Bahdanau's context is an input of the step anyway"
            raise SettingError("input_feeding", message, "style")
        if self.encoder_hidden is None and self.bidirectional and self.hidden % 2:
            message = f"hidden={self.hidden} is odd, so two directions cannot share it: give encoder_hidden"
            raise SettingError("hidden", message, "bidirectional")
