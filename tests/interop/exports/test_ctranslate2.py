"""Exported models are opened by CTranslate2 itself, which must compute and write the same."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import sentencepiece
import torch
from random_models import SIZES, random_model

import regard
from regard.api.model_names import SHIPPED
from regard.errors import UsageError
from regard.interop.exports.exporting import export_model
from regard.models.config import EncoderConfig, TransformerConfig, TransformerLMConfig

# Between them, every option that CTranslate2 knows.
OPTIONS: dict[str, dict[str, Any]] = {
    "post": {"order": "post", "scale_embedding": True, "share_embeddings": True},
    "pre": {"order": "pre", "norm": "rms", "bias": False, "activation": "swiglu", "position": "rotary", "d_k": 6,
            "d_v": 6},
    "learned": {"position": "learned", "max_length": 40, "input_norm": True, "activation": "gelu", "tie_output": False},
    "bias": {"position": "none", "output_bias": True, "activation": "silu", "source_start": True, "bias": False,
             "order": "pre"},
    "positions": {"position_layout": "halves", "position_start": 2, "activation": "gelu-tanh", "norm_eps": 1e-3},
}  # fmt: skip
LM_OPTIONS: dict[str, dict[str, Any]] = {
    "grouped": {"position": "rotary", "kv_heads": 2, "norm": "rms", "bias": False, "qkv_bias": True, "order": "pre",
                "activation": "geglu-tanh", "rope_layout": "interleaved", "rope_base": 500.0},
    "qk_norm": {"position": "rotary", "qk_norm": True, "norm_eps": 1e-5, "order": "pre", "rope_fraction": 0.5},
    "gpt": {"position": "learned", "max_length": 30, "activation": "gelu-tanh", "order": "pre",
            "scale_embedding": False},
}  # fmt: skip


def names_of(folder: Path, name: str) -> list[str]:
    tokens: list[str] = json.loads((folder / f"{name}.json").read_text())
    return tokens


@pytest.mark.parametrize("options", OPTIONS)
def test_translators(tmp_path: Path, options: str) -> None:
    """The log-probability of each token of some targets."""
    sizes = {"source_vocabulary": 273, "target_vocabulary": 273, "position": "sinusoidal", "end_ids": (3,)}
    model = random_model(tmp_path / "ours", TransformerConfig(**{**SIZES, **sizes, **OPTIONS[options]}))
    export_model(tmp_path / "ours", tmp_path / "ct2", to="ct2")
    translator = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    names = names_of(tmp_path / "ct2", "shared_vocabulary")
    sources, targets = [[5, 9, 200, 31], [77, 8]], [[40, 41, 11], [12, 60, 61, 99]]
    scored = translator.score_batch(
        [[names[token] for token in tokens] for tokens in sources],
        [[names[token] for token in tokens] for tokens in targets],
    )
    start = [2] if model.config.source_start else []
    for source, target, result in zip(sources, targets, scored, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([[*start, *source, 3]]), torch.tensor([[2, *target]]))[0]
        expected = logits.log_softmax(-1).gather(1, torch.tensor([[*target, 3]]).T)[:, 0]
        assert result.log_probs == pytest.approx(expected.tolist(), abs=2e-5)


@pytest.mark.parametrize("options", LM_OPTIONS)
def test_language_models(tmp_path: Path, options: str) -> None:
    config = TransformerLMConfig(**{**SIZES, "vocabulary": 273, **LM_OPTIONS[options]})
    model = random_model(tmp_path / "ours", config)
    export_model(tmp_path / "ours", tmp_path / "ct2", to="ct2")
    generator = ctranslate2.Generator(str(tmp_path / "ct2"), compute_type="float32")
    names = names_of(tmp_path / "ct2", "vocabulary")
    tokens = [2, 50, 7, 120, 8, 9]
    (result,) = generator.score_batch([[names[token] for token in tokens]])
    with torch.no_grad():
        logps = model(torch.tensor([tokens[:-1]]))[0].log_softmax(-1)
    expected = logps.gather(1, torch.tensor([tokens[1:]]).T)[:, 0]
    assert result.log_probs == pytest.approx(expected.tolist(), abs=2e-5)


def test_an_encoder(tmp_path: Path) -> None:
    model = random_model(tmp_path / "ours", EncoderConfig(**SIZES, vocabulary=273, position="learned", input_norm=True))
    export_model(tmp_path / "ours", tmp_path / "ct2", to="ct2")
    encoder = ctranslate2.Encoder(str(tmp_path / "ct2"), compute_type="float32")
    tokens = [5, 100, 7, 3]
    output = np.array(encoder.forward_batch([tokens]).last_hidden_state)
    with torch.no_grad():
        expected = model.encode(torch.tensor([tokens])).states
    torch.testing.assert_close(torch.from_numpy(output), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("storage", ["float32", "int8"])
def test_a_shipped_model_writes_the_same(tmp_path: Path, storage: str) -> None:
    """Greedy and beam search of the lecture's translator; int8 is compared by its texts only."""
    export_model(SHIPPED / "lecture", tmp_path / "ct2", to="ct2", storage=storage)
    translator = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type=storage)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "ct2/sentencepiece.model"))
    ours = regard.load("lecture", device="cpu", dtype="float32")
    texts = ["Le chat dort.", "Il fait beau.", "Nous mangeons une pomme."]
    for width in (1, 4):
        search = regard.Greedy() if width == 1 else regard.Beam(width, length_penalty=1.0, patience=None)
        tokens = [pieces.encode(text, out_type=str) for text in texts]
        results = translator.translate_batch(tokens, beam_size=width, length_penalty=1.0, return_scores=True)
        for text, result in zip(texts, results, strict=True):
            written = ours.translate(text, search=search)
            assert pieces.decode(result.hypotheses[0]) == written.text
            if storage == "float32":
                (scored,) = translator.score_batch([written.source_tokens[:-1]], [written.tokens[:-1]])
                assert sum(scored.log_probs) == pytest.approx(written.score, abs=1e-5)


def test_an_argos_package(tmp_path: Path) -> None:
    """What Argos Translate reads of a package: one folder with metadata, a sentencepiece model and a ct2 model."""
    out = tmp_path / "translate-fr_en.argosmodel"
    export_model(SHIPPED / "fr-en", out, to="argos")
    with zipfile.ZipFile(out) as package:
        package.extractall(tmp_path / "unpacked")
    (folder,) = (tmp_path / "unpacked").iterdir()
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (metadata["from_code"], metadata["from_name"], metadata["to_code"]) == ("fr", "French", "en")
    assert {"package_version", "argos_version", "to_name"} <= metadata.keys()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(folder / "model"))
    text = "Il fait beau aujourd'hui."
    tokens = pieces.encode(text, out_type=str)
    (result,) = translator.translate_batch([tokens], beam_size=4, replace_unknowns=True, length_penalty=0.2)
    assert pieces.decode(result.hypotheses[0]) == "The weather is nice today."


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"position": "alibi"}, "position = 'alibi'"),
        ({"window": 3}, "window = 3"),
        ({"attention": "random-features"}, "attention = 'random-features'"),
        ({"score": "additive"}, "score = 'additive'"),
        ({"attention_output": False}, "attention_output = False"),
        ({"position": "learned", "position_width": 4}, "position_width = 4"),
        ({"d_v": 5, "d_k": 4}, "one width"),
        ({"qk_norm": True}, "one epsilon"),
        (
            {"position": "rotary", "rope_scaling": "linear", "rope_factor": 2.0},
            "rope_scaling = 'linear'",
        ),
    ],
)
def test_refused(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    options = {"tie_output": False} if "position_width" in settings else {}
    random_model(tmp_path / "ours", TransformerLMConfig(**{**SIZES, "vocabulary": 273, **settings, **options}))
    with pytest.raises(UsageError, match=reason):
        export_model(tmp_path / "ours", tmp_path / "ct2", to="ct2")
    assert not (tmp_path / "ct2").exists()


@pytest.mark.parametrize(
    ("model", "to", "message"),
    [
        ("shakespeare", "argos", "takes translators"),
        ("demo-rnn-seq2seq", "ct2", "no model of the kind 'rnn-seq2seq"),
        ("fr-en", "tflite", "unknown format 'tflite'"),
    ],
)
def test_refused_by_name(tmp_path: Path, model: str, to: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        export_model(SHIPPED / model, tmp_path / "out", to=to)


def test_storages(tmp_path: Path) -> None:
    """Sizes follow the type; an unknown one is refused."""
    sizes = []
    for storage in ("float32", "float16", "int8"):
        export_model(SHIPPED / "lecture", tmp_path / storage, to="ct2", storage=storage)
        sizes.append((tmp_path / storage / "model.bin").stat().st_size)
    assert sizes[0] == pytest.approx(2 * sizes[1], rel=0.02) and math.isclose(sizes[1], 2 * sizes[2], rel_tol=0.5)
    with pytest.raises(UsageError, match="unknown storage 'int4'"):
        export_model(SHIPPED / "lecture", tmp_path / "int4", to="ct2", storage="int4")
