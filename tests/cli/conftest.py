"""Small models with random weights as folders, and a way to run the commands that use them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from regard.cli import app
from regard.models.config import (
    Config,
    EncoderConfig,
    RecurrentTranslatorConfig,
    TransformerConfig,
    TransformerLMConfig,
)
from regard.models.folder import save_model
from regard.models.presets import make_model
from regard.text.tokenizers.subwords import train_subwords
from regard.text.tokenizers.tokenizer import tokenizer_files

TEXTS = [
    "Jane visite l'Afrique en septembre.",
    "le chat noir dort dans la maison",
    "Jane visits Africa in September.",
    "the black cat sleeps in the house",
]
STACK: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 2, "hidden": 24}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders: two translators, one without attention, one with 24 places, a language model and an encoder."""
    place = tmp_path_factory.mktemp("models")
    plain = train_subwords(TEXTS, size=None, kind="unigram", lossless=False)
    lossless = train_subwords(TEXTS, size=None, kind="unigram", lossless=True)
    sides = {"source_vocabulary": plain.size, "target_vocabulary": plain.size}
    scores = {"bleu": {"name": "BLEU", "value": 31.25, "signature": "nrefs:1|case:mixed"}, "loss": 1.5}
    data = {"source": ["train.fr"], "target": ["train.en"], "demo": None, "max_length": 100}
    info = {"scores": scores, "recipe": {"data": data}, "languages": {"source": "fr", "target": "en"}}
    kinds: dict[str, tuple[Config, Any, dict[str, Any]]] = {
        "translator": (TransformerConfig(**STACK, **sides), plain, info),
        "other": (RecurrentTranslatorConfig(embedding=8, hidden=12, **sides), plain, {}),
        "plain": (RecurrentTranslatorConfig(embedding=8, hidden=12, attention="none", **sides), plain, {}),
        "short": (TransformerConfig(**STACK, **sides, position="learned", max_length=24), plain, {}),
        "writer": (TransformerLMConfig(**STACK, vocabulary=lossless.size), lossless, {"context": 32}),
        "encoder": (EncoderConfig(**STACK, vocabulary=plain.size), plain, {}),
    }
    folders = {}
    for seed, (name, (config, tokenizer, said)) in enumerate(kinds.items()):
        torch.manual_seed(seed)
        model = make_model(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(2.0)  # so that its choices are clear ones
        folders[name] = str(save_model(model, place / name, files=tokenizer_files(tokenizer, tokenizer), info=said))
    return folders


@pytest.fixture(scope="session")
def command() -> Callable[..., Result]:
    """Run a command with these arguments, and these bytes on stdin."""

    def run(*arguments: str | Path, stdin: str | bytes = "") -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)

    return run
