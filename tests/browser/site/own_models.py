"""Small models with random weights and the options that no shipped model has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard.models.config import EncoderConfig, RecurrentTranslatorConfig, TransformerConfig, TransformerLMConfig
from regard.models.folder import save_model
from regard.models.presets import make_model
from regard.text.tokenizers.subwords import train_subwords
from regard.text.tokenizers.tokenizer import tokenizer_files

TEXTS = ["Jane visite l'Afrique en septembre.", "le chat noir dort", "Jane visits Africa.", "the black cat sleeps"]


def make_own_models(place: Path) -> dict[str, Path]:
    """Return the folders of the models by name; they store their weights in several formats."""
    unigram = train_subwords(TEXTS, size=None, kind="unigram", lossless=False)
    bpe = train_subwords(TEXTS, size=320, kind="bpe", lossless=True)
    sides = {"source_vocabulary": unigram.size, "target_vocabulary": unigram.size}
    halves: dict[str, Any] = {"position_layout": "halves", "score": "dot", "decoder_layers": 1}
    stack: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 4, "hidden": 24}
    recurrent: dict[str, Any] = {"embedding": 8, "hidden": 12, **sides}
    configs: dict[str, tuple[Any, Any]] = {
        "learned": (
            TransformerConfig(
                **stack, **sides, position="learned", max_length=64, position_width=4, tie_output=False, norm="rms",
                activation="swiglu", bias=False, kv_heads=2, qk_norm=True,
            ),
            unigram,
        ),
        "alibi": (TransformerConfig(**stack, **sides, position="alibi", form="slice", order="pre"), unigram),
        "plain": (TransformerConfig(**stack, **sides, **halves), unigram),
        "window": (TransformerLMConfig(**stack, vocabulary=bpe.size, position="rotary", rope_layout="interleaved",
                                       rope_fraction=0.5, window=3, activation="gelu-tanh", order="pre"), bpe),
        "luong": (RecurrentTranslatorConfig(**recurrent, cell="lstm", layers=2, style="luong", attention="bilinear",
                                            input_feeding=True), unigram),
        "bahdanau": (RecurrentTranslatorConfig(**recurrent, attention="concat", encoder_hidden=10), unigram),
        "scaled": (RecurrentTranslatorConfig(**recurrent, attention="scaled", style="luong", cell="rnn",
                                             bidirectional=False), unigram),
        "pooled": (EncoderConfig(**stack, vocabulary=unigram.size, pooling="learned", normalize=False), unigram),
    }  # fmt: skip
    storages = ("float32", "bfloat16", "float16", "int8")
    folders: dict[str, Path] = {}
    for seed, (name, (config, tokenizer)) in enumerate(configs.items()):
        torch.manual_seed(seed)
        files = tokenizer_files(tokenizer, tokenizer)
        folders[name] = save_model(make_model(config), place / name, files=files, storage=storages[seed % 4])
    return folders
