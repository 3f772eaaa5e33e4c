"""The attention toolkit. This file is only a table of the public names; each is imported when it is first used."""

from __future__ import annotations

import gc
import importlib
from typing import Any

from regard.version import __version__

_WHERE = {
    # text
    "SubwordTokenizer": "regard.text.tokenizers.subwords",
    "CharacterTokenizer": "regard.text.tokenizers.characters",
    "demo_pairs": "regard.demo.corpus",
    "demo_stories": "regard.demo.stories",
    # positions
    "positions": "regard.positions",
    "register_position": "regard.positions.by_name",
    # attention
    "masks": "regard.attention.masks",
    "attend": "regard.attention.dispatch",
    "AdditiveScore": "regard.attention.scores",
    "BilinearScore": "regard.attention.scores",
    "ConcatScore": "regard.attention.scores",
    "DotScore": "regard.attention.scores",
    "FourierScore": "regard.attention.scores",
    "register_score": "regard.attention.scores",
    "ContentAttention": "regard.attention.single_head",
    "KeyValueAttention": "regard.attention.single_head",
    "MultiHeadAttention": "regard.attention.multihead",
    "KVCache": "regard.attention.cache",
    "StaticCache": "regard.attention.cache",
    "record": "regard.attention.recording.recorder",
    "trace": "regard.look.trace.other_libraries",
    "attend_features": "regard.kernels.linear.attend",
    "RandomFeatures": "regard.attention.linear.features",
    "RandomFeatureAttention": "regard.attention.linear.layer",
    "MixedAttention": "regard.attention.linear.mixed",
    # layers
    "Embedding": "regard.layers.embedding",
    "read_vectors": "regard.layers.word_vectors",
    "fill_from_vectors": "regard.layers.word_vectors",
    "LayerNorm": "regard.layers.normalization",
    "RMSNorm": "regard.layers.normalization",
    "FeedForward": "regard.layers.feedforward",
    "RNN": "regard.layers.recurrent",
    "GRU": "regard.layers.recurrent",
    "LSTM": "regard.layers.recurrent",
    "RNNCell": "regard.layers.cells",
    "GRUCell": "regard.layers.cells",
    "LSTMCell": "regard.layers.cells",
    "Block": "regard.layers.block",
    "CopyGate": "regard.layers.copying",
    # models
    "Transformer": "regard.models.transformer",
    "TransformerConfig": "regard.models.config",
    "TransformerLM": "regard.models.language_model",
    "TransformerLMConfig": "regard.models.config",
    "RecurrentLM": "regard.models.language_model",
    "RecurrentLMConfig": "regard.models.config",
    "RecurrentTranslator": "regard.models.recurrent.translator",
    "RecurrentTranslatorConfig": "regard.models.config",
    "SentenceEncoder": "regard.models.encoders.sentence_encoder",
    "EncoderConfig": "regard.models.config",
    "TextClassifier": "regard.models.encoders.text_classifier",
    "ClassifierConfig": "regard.models.config",
    "PointerGenerator": "regard.models.pointer_generator",
    "SummarizerConfig": "regard.models.config",
    "AnswererConfig": "regard.models.config",
    "VisionTransformer": "regard.models.arrays.vision_transformer",
    "TransformerCaptioner": "regard.models.arrays.captioner",
    "RecurrentCaptioner": "regard.models.arrays.recurrent_captioner",
    "ImageClassifierConfig": "regard.models.config",
    "CaptionerConfig": "regard.models.config",
    "RecurrentCaptionerConfig": "regard.models.config",
    "PatchForecaster": "regard.models.arrays.patch_forecaster",
    "ForecasterConfig": "regard.models.config",
    "DLinear": "regard.models.arrays.dlinear",
    "LinearForecasterConfig": "regard.models.config",
    "SpeechTransformer": "regard.models.arrays.speech_recognizers",
    "SpeechRecognizerConfig": "regard.models.config",
    "ListenAttendSpell": "regard.models.arrays.speech_recognizers",
    "ListenAttendSpellConfig": "regard.models.config",
    "SpeechCTC": "regard.models.arrays.speech_recognizers",
    "SpeechCTCConfig": "regard.models.config",
    "from_torch": "regard.models.torch_weights",
    "preset": "regard.models.presets",
    "make_model": "regard.models.presets",
    "save_model": "regard.models.folder",
    "load_model": "regard.models.folder",
    # kernels
    "kernels": "regard.kernels",
    # decoding
    "Greedy": "regard.decoding.searches.greedy",
    "Sample": "regard.decoding.searches.sample",
    "Beam": "regard.decoding.searches.beam",
    "MinimumRisk": "regard.decoding.searches.minimum_risk",
    "Speculative": "regard.decoding.searches.speculative",
    # look
    "look": "regard.look",
    # interop
    "import_model": "regard.interop.importing",
    "export_model": "regard.interop.exports.exporting",
    # api
    "load": "regard.tasks.loading",
    "Translator": "regard.api.translator",
    "Writer": "regard.api.writer",
    "Embedder": "regard.api.embedder",
    "Classifier": "regard.api.classifier",
    "Summarizer": "regard.api.copying.summarizer",
    "Answerer": "regard.api.copying.answerer",
    "WordVectors": "regard.api.word_vectors",
    "ImageClassifier": "regard.api.arrays.image_classifier",
    "Captioner": "regard.api.arrays.captioner",
    "Forecaster": "regard.api.arrays.forecaster",
    "Transcriber": "regard.api.arrays.transcriber",
    # training
    "train": "regard.training.run.training_run",
}

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    collects = gc.isenabled()
    gc.disable()  # imports leave no garbage, and searching for it would take a seventh of the time to import torch
    try:
        module = importlib.import_module(_WHERE[name])
    finally:
        if collects:
            gc.enable()
    value = module if module.__name__.rpartition(".")[2] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
