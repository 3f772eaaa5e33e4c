"""The settings of models that hear: speech recognizers with an attention decoder, and with CTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from regard.layers.block import ORDERS
from regard.layers.feedforward import Activation
from regard.models.config.base import COUNT, Config, vocabulary_of
from regard.models.config.recurrent import CELLS, RecurrentTranslatorConfig
from regard.models.config.stack import StackConfig
from regard.settings import SHARE, SettingError, ValueRule, choice, number

FRONT_ENDS = ("convolution", "stacking")
SCALINGS = ("loudest", "bands")


@dataclass(frozen=True, kw_only=True)
class SoundConfig(Config):
    """How sound becomes the vectors that an encoder reads."""

    rate: int = number(16_000, rule=ValueRule(least=1_000, most=192_000))  # samples in a second
    mels: int = number(80, rule=ValueRule(least=1, most=512))  # bands of a frame
    subsampling: int = number(4, rule=ValueRule(least=1, most=64))  # frames to one vector
    scaling: str = choice("loudest", SCALINGS)  # relative to the loudest cell, or each band to mean 0 and variance 1

    def check_power(self) -> None:
        """Raise SettingError if the frames cannot be halved until `subsampling` of them are one."""
        if self.subsampling & (self.subsampling - 1):
            message = f"each layer halves the frames, so subsampling must be a power of 2, got {self.subsampling}"
            raise SettingError("subsampling", message)

    @property
    def halvings(self) -> int:
        """How often the number of frames is halved."""
        return self.subsampling.bit_length() - 1


@dataclass(frozen=True, kw_only=True)
class SpeechStackConfig(SoundConfig, StackConfig):
    """A Transformer encoder over frames, shared by the recognizer and CTC."""

    activation: str = choice("gelu", get_args(Activation))
    order: str = choice("pre", ORDERS)
    vocabulary: int = vocabulary_of("target")
    front_end: str = choice("convolution", FRONT_ENDS)  # two at a time, or all at once by a linear layer
    local_layers: int = number(0, rule=ValueRule(least=0, most=64))  # residual convolutions before the blocks

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.front_end == "convolution":
            self.check_power()


@dataclass(frozen=True, kw_only=True)
class SpeechRecognizerConfig(SpeechStackConfig):
    """The speech recognizer: a Transformer encoder over frames, and a Transformer decoder. Dong et al. 2018."""

    decoder_layers: int | None = number(None, rule=COUNT)  # default: as many as the encoder
    tie_output: bool = True  # the output layer is the table of token vectors
    ctc: float = number(0.0, rule=SHARE)  # the share of CTC in the loss (Watanabe et al. 2017); 0: none

    @property
    def kind(self) -> str:
        return "speech-recognizer"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers, "decoder": self.decoder_layers or self.layers}

    @property
    def layer_count(self) -> int:
        return self.layers + (self.decoder_layers or 0)


@dataclass(frozen=True, kw_only=True)
class SpeechCTCConfig(SpeechStackConfig):
    """A Transformer encoder over frames, and a linear layer that labels each vector. Graves et al. 2006."""

    scale_embedding: bool = False

    @property
    def kind(self) -> str:
        return "speech-ctc"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale_embedding:
            raise SettingError("scale_embedding", "scale_embedding is for tokens, and this model reads none")


@dataclass(frozen=True, kw_only=True)
class ListenAttendSpellConfig(SoundConfig, RecurrentTranslatorConfig):
    """Listen, Attend and Spell (Chan et al. 2016): a pyramid of recurrent layers, and a recurrent attention decoder."""

    source_vocabulary: int = number(0, rule=ValueRule(least=0, most=0))  # its source is sound
    cell: str = choice("lstm", CELLS)

    @property
    def kind(self) -> str:
        return "listen-attend-spell"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": 1 + self.halvings, "decoder": self.layers}

    @classmethod
    def complete_kind(cls, kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        return dict(settings)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_power()
        if self.attention == "none":
            raise SettingError("attention", "a speller without attention cannot attend: take a score, such as additive")
