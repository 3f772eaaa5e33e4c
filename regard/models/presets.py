"""Published model sizes by name.

    make_model(preset("transformer-base", source_vocabulary=37000, target_vocabulary=37000))

MODELS lists the kinds of model, PRESETS the sizes.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.errors import UsageError, unknown_name
from regard.models.arrays.captioner import TransformerCaptioner
from regard.models.arrays.dlinear import DLinear
from regard.models.arrays.patch_forecaster import PatchForecaster
from regard.models.arrays.recurrent_captioner import RecurrentCaptioner
from regard.models.arrays.speech_recognizers import ListenAttendSpell, SpeechCTC, SpeechTransformer
from regard.models.arrays.vision_transformer import VisionTransformer
from regard.models.config import (
    AnswererConfig,
    CaptionerConfig,
    ClassifierConfig,
    Config,
    EncoderConfig,
    ForecasterConfig,
    ImageClassifierConfig,
    LinearForecasterConfig,
    ListenAttendSpellConfig,
    RecurrentCaptionerConfig,
    RecurrentLMConfig,
    RecurrentTranslatorConfig,
    SpeechCTCConfig,
    SpeechRecognizerConfig,
    SummarizerConfig,
    TransformerConfig,
    TransformerLMConfig,
    WordVectorConfig,
)
from regard.models.encoders.sentence_encoder import SentenceEncoder
from regard.models.encoders.text_classifier import TextClassifier
from regard.models.language_model import RecurrentLM, TransformerLM
from regard.models.pointer_generator import PointerGenerator
from regard.models.recurrent.translator import RecurrentTranslator
from regard.models.transformer import Transformer
from regard.models.word_vectors import WordVectorModel

# The kind in recipes and model folders -> the class of its settings and of the network.
MODELS: dict[str, tuple[type[Config], type[nn.Module]]] = {
    "transformer": (TransformerConfig, Transformer),
    "transformer-lm": (TransformerLMConfig, TransformerLM),
    "encoder": (EncoderConfig, SentenceEncoder),
    "classifier": (ClassifierConfig, TextClassifier),
    "summarizer": (SummarizerConfig, PointerGenerator),
    "answerer": (AnswererConfig, PointerGenerator),
    "rnn-lm": (RecurrentLMConfig, RecurrentLM),
    "rnn-seq2seq": (RecurrentTranslatorConfig, RecurrentTranslator),
    "rnn-attention": (RecurrentTranslatorConfig, RecurrentTranslator),
    "word-vectors": (WordVectorConfig, WordVectorModel),
    "image-classifier": (ImageClassifierConfig, VisionTransformer),
    "captioner": (CaptionerConfig, TransformerCaptioner),
    "rnn-captioner": (RecurrentCaptionerConfig, RecurrentCaptioner),
    "forecaster": (ForecasterConfig, PatchForecaster),
    "dlinear": (LinearForecasterConfig, DLinear),
    "speech-recognizer": (SpeechRecognizerConfig, SpeechTransformer),
    "listen-attend-spell": (ListenAttendSpellConfig, ListenAttendSpell),
    "speech-ctc": (SpeechCTCConfig, SpeechCTC),
}

PRESETS: dict[str, tuple[type[Config], dict[str, Any]]] = {
    # Vaswani et al. 2017, table 3: base and big.
    "transformer-base": (TransformerConfig, {}),
    "transformer-big": (TransformerConfig, {"dim": 1024, "heads": 16, "hidden": 4096, "dropout": 0.3}),
    # Wu et al. 2021, section 4.1: for small data such as Multi30k.
    "transformer-tiny": (TransformerConfig, {"layers": 4, "dim": 128, "heads": 4, "hidden": 256, "dropout": 0.3}),
    # Radford et al. 2019: the smallest GPT-2.
    "gpt2": (
        TransformerLMConfig,
        {
            "layers": 12,
            "dim": 768,
            "heads": 12,
            "hidden": 3072,
            "activation": "gelu-tanh",
            "order": "pre",
            "position": "learned",
            "max_length": 1024,
            "scale_embedding": False,
        },
    ),
    # Sutskever et al. 2014, section 3.4: four layers of 1000 cells.
    "sutskever": (
        RecurrentTranslatorConfig,
        {
            "cell": "lstm",
            "layers": 4,
            "embedding": 1000,
            "hidden": 1000,
            "attention": "none",
            "bidirectional": False,
            "dropout": 0.0,
        },
    ),
    # Bahdanau et al. 2015, appendix A.2.3: 1000 units in each direction, embeddings of width 620.
    "bahdanau": (
        RecurrentTranslatorConfig,
        {"cell": "gru", "embedding": 620, "hidden": 1000, "encoder_hidden": 1000, "dropout": 0.0},
    ),
    # Luong et al. 2015, section 4.1: four layers of 1000 cells, input feeding.
    "luong": (
        RecurrentTranslatorConfig,
        {
            "cell": "lstm",
            "layers": 4,
            "embedding": 1000,
            "hidden": 1000,
            "attention": "bilinear",
            "style": "luong",
            "input_feeding": True,
            "bidirectional": False,
            "dropout": 0.2,
        },
    ),
}


def preset(name: str, **settings: Any) -> Config:
    """Return the settings of that name; `settings` adds the vocabulary and overrides others.

    >>> config = preset("transformer-base", source_vocabulary=32_000, target_vocabulary=32_000)
    >>> config.layers, config.dim, config.heads  # Vaswani et al. 2017, table 3
    (6, 512, 8)
    """
    if name not in PRESETS:
        raise UsageError(unknown_name("preset", name, tuple(PRESETS)))
    kind, sizes = PRESETS[name]
    return kind.from_dict({**sizes, **settings})


def make_model(config: Config) -> nn.Module:
    """Make the network that a config describes, with newly initialized weights."""
    if not isinstance(config, Config):
        raise TypeError(f"config must be one of regard's model configs, got {type(config).__name__}")
    return MODELS[config.kind][1](config)
