"""Exported translators are opened by `from_pretrained` of transformers, whose classes compute and write the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from random_models import SIZES, random_model
from small_translators import ENGLISH, FRENCH, TEXTS, make_fairseq, make_marian, make_t5

import regard
from regard.api.model_names import SHIPPED
from regard.decoding.engine import generate_tokens
from regard.errors import UsageError
from regard.interop import export_model, import_model, read
from regard.models.config import TransformerConfig
from regard.text.tokenizers.tokenizer import read_tokenizers

OWN = {"source_vocabulary": 273, "target_vocabulary": 273, "decoder_layers": 1, "share_embeddings": True}
LEARNED = {"order": "pre", "position": "learned", "max_length": 40, "input_norm": True, "pad_id": 1, "unknown_id": 0}
T5 = {"order": "pre", "position": "t5", "norm": "rms", "bias": False}
# Between them, every setting that a class knows.
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "marian": ("Marian", {}),
    "marian-separate": ("Marian", {"share_embeddings": False, "output_bias": True, "activation": "silu"}),
    "marian-halves": ("Marian", {"position_layout": "halves", "scale_embedding": False, "norm_eps": 1e-5}),
    "pegasus": ("Pegasus", {"order": "pre", "activation": "gelu-tanh"}),
    "pegasus-bias": ("Pegasus", {"order": "pre", "output_bias": True, "scale_embedding": False}),
    "m2m100": (
        "M2M100",
        {"order": "pre", "position_start": 2, "position_base": 10000 ** (8 / 7), "pad_id": 1, "unknown_id": 0},
    ),
    "mbart": ("MBart", {**LEARNED, "activation": "gelu"}),
    "t5": ("T5", {**T5, "scale_embedding": False, "norm_eps": 1e-4}),
    "t5-untied": ("T5", {**T5, "tie_output": False, "activation": "geglu-tanh", "d_k": 6, "d_v": 6}),
    "t5-scaled": ("T5", {**T5, "activation": "gelu-tanh"}),
}


def outputs(model: Any, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        mask = (source != model.config.pad_token_id).long()
        return model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits


@pytest.mark.parametrize("options", OPTIONS)
def test_random_models(tmp_path: Path, options: str) -> None:
    """Logits of a padded batch, greedy texts and beams."""
    name, settings = OPTIONS[options]
    config = TransformerConfig(**{**SIZES, **OWN, "barred_ids": (0,), "end_ids": (3,), **settings})
    model = random_model(tmp_path / "ours", config)
    out = export_model(tmp_path / "ours", tmp_path / "hf", to="hf")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(out)
    assert type(theirs).__name__.startswith(name)
    draws = torch.Generator().manual_seed(1)
    source, target = (torch.randint(5, 270, (3, n), generator=draws) for n in (9, 7))
    source[1, 5:] = config.pad_id
    with torch.no_grad():
        expected = model(source, target)
    torch.testing.assert_close(outputs(theirs, source, target), expected, atol=1e-5, rtol=1e-5)
    rows = [source[0].tolist(), source[1, :5].tolist()]
    for search, width in ((regard.Greedy(), 1), (regard.Beam(3, patience=None), 3)):
        ours = generate_tokens(model, rows, search=search, max_tokens=10)
        for row, (best, *_) in zip(rows, ours, strict=True):
            written = theirs.generate(
                torch.tensor([row]), max_length=None, max_new_tokens=10, num_beams=width, length_penalty=1.0,
                early_stopping="never" if width > 1 else False,
            )[0, 1:].tolist()  # fmt: skip
            if best.finished or width == 1:
                assert [token for token in written if token != config.pad_id] == best.tokens


def test_a_model_of_our_own_translates_the_same(tmp_path: Path) -> None:
    """Subwords as MarianTokenizer reads them; the text of a beam, from text to text."""
    folder = SHIPPED / "lecture"
    ours = regard.load(folder, device="cpu")
    out = export_model(folder, tmp_path / "hf", to="hf")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    assert type(tokenizer).__name__ == "MarianTokenizer"
    lines = ["Le chat dort.", "Il fait beau aujourd'hui.", "Les élèves sont allés à l'école."]
    for line in lines:
        ids = tokenizer(line, return_tensors="pt")
        tokens = [*ours.tokenizer.encode(line), ours.special.end]
        assert ids["input_ids"][0].tolist() == tokens
        ((best,),) = generate_tokens(ours.model, [tokens], search=regard.Greedy(), max_tokens=40)
        written = theirs.generate(**ids, num_beams=1, max_new_tokens=40)[0]
        assert tokenizer.decode(written, skip_special_tokens=True) == ours.target_tokenizer.decode(best.tokens)
    back = regard.load(import_model(out, tmp_path / "back"), device="cpu")
    assert back.translate(lines[0]).text == ours.translate(lines[0]).text


IMPORTS = {
    "marian": ("Marian", lambda folder: make_marian(folder)),
    "marian-codes": ("Marian", lambda folder: make_marian(folder, codes=True)),
    "marian-separate": ("Marian", lambda folder: make_marian(folder, separate=True)),
    "m2m_100": ("M2M100", lambda folder: make_fairseq(folder, "m2m_100")),
    "mbart": ("MBart", lambda folder: make_fairseq(folder, "mbart", activation_function="gelu")),
    "t5": ("T5", make_t5),
    "flan-t5": (
        "T5",
        lambda folder: make_t5(folder, untied=True, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    ),
}


@pytest.mark.parametrize("family", IMPORTS)
def test_import_export_import(tmp_path: Path, family: str) -> None:
    """The weights come back bit for bit in regard and in transformers, with settings, tokens and tokenizers."""
    name, make = IMPORTS[family]
    original = make(tmp_path / "original")
    if family == "marian":  # the probability of padding is 0, by its bias
        path = tmp_path / "original/generation_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "renormalize_logits": True}))
    first = read(tmp_path / "original")
    import_model(tmp_path / "original", tmp_path / "first")
    out = export_model(tmp_path / "first", tmp_path / "hf", to="hf")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(out)
    assert type(theirs) is type(original.model) and type(theirs).__name__.startswith(name)
    scaled = ("SelfAttention.q", "EncDecAttention.q", "decoder.final_layer_norm") if name == "T5" else ()
    for key, weight in original.model.state_dict().items():
        found = theirs.state_dict()[key]
        start = 2 if name == "MBart" and "embed_positions" in key else 0  # rows that no text reaches
        tolerance = 1e-6 if any(part in key for part in scaled) else 0.0
        if family == "marian" and key == "final_logits_bias":
            found[0, -1] = weight[0, -1]  # of padding, which has no effect then
        torch.testing.assert_close(found[start:], weight[start:], rtol=tolerance, atol=0)
    second = read(out)
    assert second.config == first.config
    weights = dict(second.weights())
    for key, weight in first.weights():
        exact = torch.equal(weights[key], weight)
        assert exact or (scaled and torch.allclose(weights[key], weight, rtol=1e-6))
    for key in ("frame", "search", "language_codes"):
        assert second.info.get(key) == first.info.get(key)
    for ours, again in zip(first.tokenizers, second.tokenizers, strict=True):
        assert all(again.encode(text) == ours.encode(text) for text in [*TEXTS, *FRENCH, *ENGLISH])
        assert again.decode(range(ours.size)) == ours.decode(range(ours.size))
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    for text in FRENCH:
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == first.tokenizers[0].encode(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"position": "rotary", "order": "pre"}, "no encoder-decoder with position = 'rotary'"),
        ({"decoder_self": "ssru"}, "MarianMTModel does not compute decoder_self = 'ssru'"),
        ({"position_base": 500.0}, r"MarianMTModel does not compute position_base = 500\.0"),
        ({"norm_eps": 1e-6}, "MarianMTModel does not compute norm_eps = 1e-06"),
        ({"order": "pre", "share_embeddings": False}, "Pegasus.* share_embeddings = False"),
        ({"source_start": True}, "an end token after a source, and nothing else"),
        ({"attention": "random-features"}, "attention = 'random-features'"),
        ({"tie_output": False}, "tie_output = False"),
        ({**T5, "activation": "swiglu"}, "T5.* activation = 'swiglu'"),
    ],
)
def test_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    random_model(tmp_path / "ours", TransformerConfig(**{**SIZES, **OWN, **settings}))
    with pytest.raises(UsageError, match=f"{message}.*--to ct2 and --to onnx"):
        export_model(tmp_path / "ours", tmp_path / "hf", to="hf")
    assert not (tmp_path / "hf").exists()


def test_the_sides_of_fr_en_are_refused(tmp_path: Path) -> None:
    assert read_tokenizers(SHIPPED / "fr-en")[0].size
    with pytest.raises(UsageError, match="no encoder-decoder with position = 'rotary'"):
        export_model(SHIPPED / "fr-en", tmp_path / "hf", to="hf")
