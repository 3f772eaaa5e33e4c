"""Small random models for images, series, sound and texts to copy from, behind their faces."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from regard.api.arrays.captioner import Captioner
from regard.api.arrays.forecaster import Forecaster
from regard.api.arrays.image_classifier import ImageClassifier
from regard.api.arrays.transcriber import Transcriber
from regard.api.copying.answerer import Answerer
from regard.api.copying.summarizer import Summarizer
from regard.models.config import ForecasterConfig, ImageClassifierConfig, LinearForecasterConfig
from regard.models.presets import MODELS, make_model
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.labels import train_labels
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS
from regard.text.tokenizers.words import train_words

LABELS = ["bird", "cat", "dog"]
STACK: dict[str, Any] = {"layers": 2, "dim": 8, "heads": 2, "hidden": 8}
STORY, QUESTION = "It was cold. Ana saw the park. Bo slept.", "Who saw the park?"
LINES = {"lookback": 24, "horizon": 6}


def small_classifier(pooling: str = "class", channels: int = 3) -> ImageClassifier:
    """A classifier of images of 8 x 12 pixels, with patches of 4 x 4."""
    torch.manual_seed(1)
    sizes = {"height": 8, "width": 12, "channels": channels, "patch": 4, "max_length": 7}
    vocabulary = len(SPECIAL_TOKENS) + len(LABELS)
    config = ImageClassifierConfig(**STACK, **sizes, pooling=pooling, vocabulary=vocabulary)
    return ImageClassifier(_loud(make_model(config)), train_labels(LABELS))


def small_forecaster(kind: str = "forecaster") -> Forecaster:
    """A forecaster that reads 24 rows as 6 patches and forecasts 6."""
    torch.manual_seed(1)
    patches = {**STACK, "patch": 8, "stride": 4, "max_length": 6}
    config = ForecasterConfig(**LINES, **patches) if kind == "forecaster" else LinearForecasterConfig(**LINES)
    info = {"series": {"columns": ["load", "heat"], "mean": [5.0, -1.0], "deviation": [2.0, 0.5]}}
    return Forecaster(_loud(make_model(config)), info=info)


def small_series(rows: int = 40) -> np.ndarray:
    """Values of the two columns."""
    return np.random.default_rng(1).normal([5.0, -1.0], [2.0, 0.5], (rows, 2))


def small_transcriber(kind: str = "speech-recognizer") -> Transcriber:
    """A recognizer of words at 8,000 Hz with 6 bands; two frames are a moment."""
    torch.manual_seed(1)
    words = train_words(["low high"] * 5, tokenised=True)
    sizes = {"embedding": 8, "hidden": 8} if kind == "listen-attend-spell" else STACK
    config, _ = MODELS[kind]
    vocabulary = {name: words.size for name, side in config.vocabulary_fields().items() if side == "target"}
    return Transcriber(_loud(make_model(config(rate=8000, mels=6, subsampling=2, **sizes, **vocabulary))), words)


def small_captioner(kind: str = "captioner", frames: int = 1) -> Captioner:
    """A captioner of grey images of 8 x 12 pixels, or of videos of such frames, with cells of 4 x 4."""
    torch.manual_seed(1)
    words = train_words(["a disc above two crosses"] * 5, tokenised=True)
    sizes = {"embedding": 8, "hidden": 8, "convolution": 4} if kind == "rnn-captioner" else STACK
    grid = {"frames": frames, "height": 8, "width": 12, "channels": 1, "patch": 4}
    model = make_model(MODELS[kind][0](**sizes, **grid, target_vocabulary=words.size))
    return Captioner(_loud(model), words, info={"longest_caption": 6})


def small_copier(kind: str) -> Any:
    """A summarizer or an answerer that reads letters."""
    torch.manual_seed(1)
    letters = train_characters([STORY, QUESTION])
    config, _ = MODELS[kind]
    sizes = dict.fromkeys(config.vocabulary_fields(), letters.size)
    face = Summarizer if kind == "summarizer" else Answerer
    return face(_loud(make_model(config(**STACK, **sizes))), letters)


def _loud(model: Any) -> Any:
    """The model with larger weights, so that its attention is far from uniform."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model.eval()
