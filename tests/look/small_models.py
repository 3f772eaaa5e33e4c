"""Small random models behind their faces, for tests that look at them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from regard.api.embedder import Embedder
from regard.api.translator import Translator
from regard.api.writer import Writer
from regard.models.config import (
    EncoderConfig,
    RecurrentLMConfig,
    RecurrentTranslatorConfig,
    TransformerConfig,
    TransformerLMConfig,
)
from regard.models.presets import make_model
from regard.text.tokenizers.subwords import SubwordTokenizer, train_subwords

LINES = [
    "le chat noir dort dans la maison",
    "la petite fille mange une pomme rouge",
    "the black cat sleeps in the house",
    "the little girl eats a red apple",
]
TEXT = "le chat mange une pomme"
STACK: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 4, "hidden": 24, "dropout": 0.3}
CELL: dict[str, Any] = {"embedding": 12, "hidden": 16, "dropout": 0.3}


@cache
def tokenizer() -> SubwordTokenizer:
    return train_subwords(LINES, size=None, kind="unigram", lossless=False)


def small_face(kind: str, dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    """A model of that kind with these settings, its weights drawn anew by one seed, and loud."""
    torch.manual_seed(3)
    size = tokenizer().size
    sides = {"source_vocabulary": size, "target_vocabulary": size}
    config: Any = {
        "transformer": lambda: TransformerConfig(**{**STACK, **sides, **settings}),
        "rnn": lambda: RecurrentTranslatorConfig(**{**CELL, **sides, **settings}),
        "transformer-lm": lambda: TransformerLMConfig(**{**STACK, "vocabulary": size, **settings}),
        "rnn-lm": lambda: RecurrentLMConfig(**{**CELL, "vocabulary": size, **settings}),
        "encoder": lambda: EncoderConfig(**{**STACK, "vocabulary": size, **settings}),
    }[kind]()
    model = make_model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases and gains differ from their first values, 0 and 1, so that leaving one out is seen.
            parameter.mul_(1.5).add_(torch.randn_like(parameter) * 0.1)
    model = model.to(dtype).eval()
    if kind == "encoder":
        return Embedder(model, tokenizer())
    if kind.endswith("lm"):
        return Writer(model, tokenizer())
    return Translator(model, tokenizer(), tokenizer())
