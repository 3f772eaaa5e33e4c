"""The settings of whole models: frozen dataclasses, checked when they are created.

config.json of a model folder contains them; a recipe sets them.
"""

from regard.models.config.arrays import ForecasterConfig, ImageClassifierConfig, LinearForecasterConfig
from regard.models.config.base import SIZE, Config, vocabulary_of
from regard.models.config.captioners import CaptionerConfig, FrameConfig, RecurrentCaptionerConfig
from regard.models.config.recurrent import CELLS, RecurrentConfig, RecurrentLMConfig, RecurrentTranslatorConfig
from regard.models.config.speech import (
    ListenAttendSpellConfig,
    SoundConfig,
    SpeechCTCConfig,
    SpeechRecognizerConfig,
    SpeechStackConfig,
)
from regard.models.config.stack import StackConfig
from regard.models.config.transformer import (
    AnswererConfig,
    ClassifierConfig,
    EncoderConfig,
    PointerGeneratorConfig,
    SummarizerConfig,
    TransformerConfig,
    TransformerLMConfig,
)
from regard.models.config.word_vectors import WordVectorConfig

__all__ = [
    "CELLS",
    "SIZE",
    "AnswererConfig",
    "CaptionerConfig",
    "ClassifierConfig",
    "Config",
    "EncoderConfig",
    "ForecasterConfig",
    "FrameConfig",
    "ImageClassifierConfig",
    "LinearForecasterConfig",
    "ListenAttendSpellConfig",
    "PointerGeneratorConfig",
    "RecurrentCaptionerConfig",
    "RecurrentConfig",
    "RecurrentLMConfig",
    "RecurrentTranslatorConfig",
    "SoundConfig",
    "SpeechCTCConfig",
    "SpeechRecognizerConfig",
    "SpeechStackConfig",
    "StackConfig",
    "SummarizerConfig",
    "TransformerConfig",
    "TransformerLMConfig",
    "WordVectorConfig",
    "vocabulary_of",
]
