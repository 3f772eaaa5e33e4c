"""Small models of every kind with random weights, and small tokenizers, in memory and as folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from regard.api.embedder import Embedder
from regard.api.translator import Translator
from regard.api.writer import Writer
from regard.models.config import (
    Config,
    EncoderConfig,
    RecurrentLMConfig,
    RecurrentTranslatorConfig,
    TransformerConfig,
    TransformerLMConfig,
)
from regard.models.folder import save_model
from regard.models.presets import make_model
from regard.text.tokenizers.characters import CharacterTokenizer, train_characters
from regard.text.tokenizers.subwords import SubwordTokenizer, train_subwords
from regard.text.tokenizers.tokenizer import tokenizer_files

FRENCH = [
    "Jane visite l'Afrique en septembre.",
    "le chat noir dort dans la maison",
    "la petite fille mange une pomme rouge",
    "nous visitons la grande maison en septembre",
    "le garçon voit un chat et une fille",
    "il ne mange pas la pomme",
]
ENGLISH = [
    "Jane visits Africa in September.",
    "the black cat sleeps in the house",
    "the little girl eats a red apple",
    "we visit the big house in September",
    "the boy sees a cat and a girl",
    "he does not eat the apple",
]
STACK: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 2, "hidden": 24, "dropout": 0.1}
CELL: dict[str, Any] = {"embedding": 12, "hidden": 16, "dropout": 0.1}


@pytest.fixture(scope="session")
def pieces() -> SubwordTokenizer:
    """One vocabulary of pieces for both languages."""
    return train_subwords([*FRENCH, *ENGLISH], size=None, kind="unigram", lossless=False)


@pytest.fixture(scope="session")
def lossless() -> SubwordTokenizer:
    return train_subwords([*FRENCH, *ENGLISH], size=None, kind="unigram", lossless=True)


@pytest.fixture(scope="session")
def letters() -> CharacterTokenizer:
    return train_characters([*FRENCH, *ENGLISH, "\n"])


def seeded(config: Config, seed: int = 1) -> nn.Module:
    """A model of its seed, loud enough that its choices are clear ones."""
    torch.manual_seed(seed)
    model = make_model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model.eval()


def translator_config(kind: str, size: int) -> Config:
    sides = {"source_vocabulary": size, "target_vocabulary": size}
    match kind:
        case "transformer":
            return TransformerConfig(**STACK, **sides)
        case "learned":
            return TransformerConfig(**STACK, **sides, position="learned", max_length=24)
        case "rnn-attention":
            return RecurrentTranslatorConfig(**CELL, **sides)
    return RecurrentTranslatorConfig(**CELL, **sides, attention="none")


@pytest.fixture
def translator_of(pieces: SubwordTokenizer) -> Callable[..., Translator]:
    """A translator of a kind, with what config.json would say."""

    def make(kind: str = "transformer", *, tokenizer: Any = None, **info: Any) -> Translator:
        tokenizer = tokenizer or pieces
        return Translator(seeded(translator_config(kind, tokenizer.size)), tokenizer, tokenizer, info=info)

    return make


@pytest.fixture(params=["transformer", "rnn-attention", "rnn-seq2seq"])
def translator(request: pytest.FixtureRequest, translator_of: Callable[..., Translator]) -> Translator:
    return translator_of(request.param)


@pytest.fixture
def writer_of(lossless: SubwordTokenizer) -> Callable[..., Writer]:
    def make(kind: str = "transformer-lm", *, tokenizer: Any = None, **info: Any) -> Writer:
        tokenizer = tokenizer or lossless
        config = (
            RecurrentLMConfig(**CELL, vocabulary=tokenizer.size)
            if kind == "rnn-lm"
            else TransformerLMConfig(**STACK, vocabulary=tokenizer.size)
        )
        return Writer(seeded(config), tokenizer, info=info)

    return make


@pytest.fixture
def embedder(pieces: SubwordTokenizer) -> Embedder:
    return Embedder(seeded(EncoderConfig(**STACK, vocabulary=pieces.size)), pieces)


@pytest.fixture
def folder_of(tmp_path: Path) -> Callable[..., Path]:
    """A model of ours written as a folder."""

    def write(face: Translator | Writer | Embedder, name: str = "model", **info: Any) -> Path:
        source = face.tokenizer
        target = face.target_tokenizer if isinstance(face, Translator) else source
        files = tokenizer_files(source, target)
        return save_model(face.model, tmp_path / name, files=files, info={**face.info, **info})

    return write
